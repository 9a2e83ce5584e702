// interp/call.cpp
// What a call is: Python code that we run, or something native. Everything that only leads to a Python
// function (bound methods, partials, classes, objects with `__call__`) is unfolded until the function is
// reached.

#include "interp/call.h"

#include <vector>

#include "interp/arguments.h"
#include "interp/errors.h"
#include "interp/generator.h"
#include "interp/run.h"
#include "interp/semantics_parts.h"
#include "interp/special.h"
#include "interp/thread.h"

namespace bolt::interp {

namespace {

PyObject* partial_type = nullptr;

CallStart start_function(Semantics& s, Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                         PyObject* kwnames) {
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  if (code->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) {
    return {s.make_generator(frame, function, args, nargs, kwnames), nullptr};
  }
  return {nullptr, bind_call(function, args, nargs, kwnames)};
}

CallStart start_with_self(Semantics& s, Frame& frame, PyObject* callable, PyObject* self,
                          PyObject* const* args, size_t nargs, PyObject* kwnames) {
  const size_t total = nargs + keyword_count(kwnames);
  Arguments all(total + 1);
  all.add(self);
  all.add(args, total);
  return s.start_call(frame, callable, all.data(), nargs + 1, kwnames);
}

/// functools.partial(f, *a, **k)(*args, **kw) is f(*a, *args, **{**k, **kw}).
CallStart start_partial(Semantics& s, Frame& frame, PyObject* partial, PyObject* const* args, size_t nargs,
                        PyObject* kwnames) {
  PyObject* function = PyObject_GetAttrString(partial, "func");
  PyObject* first = function ? PyObject_GetAttrString(partial, "args") : nullptr;
  PyObject* keywords = first ? PyObject_GetAttrString(partial, "keywords") : nullptr;
  PyObject* all_args =
      keywords ? PyTuple_New(PyTuple_GET_SIZE(first) + static_cast<Py_ssize_t>(nargs)) : nullptr;
  PyObject* all_keywords = all_args ? PyDict_Copy(keywords) : nullptr;
  CallStart start;
  if (all_keywords) {
    Py_ssize_t at = 0;
    for (; at < PyTuple_GET_SIZE(first); ++at)
      PyTuple_SET_ITEM(all_args, at, Py_NewRef(PyTuple_GET_ITEM(first, at)));
    for (size_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(all_args, at++, Py_NewRef(args[i]));
    bool ok = true;
    for (size_t i = 0; ok && i < keyword_count(kwnames); ++i) {
      ok = PyDict_SetItem(all_keywords, PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i)),
                          args[nargs + i]) == 0;
    }
    if (ok) start = start_star_call(s, frame, function, all_args, all_keywords);
  }
  Py_XDECREF(function);
  Py_XDECREF(first);
  Py_XDECREF(keywords);
  Py_XDECREF(all_args);
  Py_XDECREF(all_keywords);
  return start;
}

/// The keyword part of a vectorcall as a dict; null without an exception when there is none.
PyObject* keywords_as_dict(PyObject* const* values, PyObject* kwnames) {
  if (!keyword_count(kwnames)) return nullptr;
  PyObject* dict = PyDict_New();
  for (Py_ssize_t i = 0; dict && i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(kwnames, i), values[i]) < 0) Py_CLEAR(dict);
  }
  return dict;
}

PyObject* args_as_tuple(PyObject* const* args, size_t nargs) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(nargs));
  for (size_t i = 0; tuple && i < nargs; ++i)
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), Py_NewRef(args[i]));
  return tuple;
}

/// Calls a class's tp_new in C, which takes a tuple and a dict.
PyObject* native_new(PyTypeObject* cls, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  PyObject* tuple = args_as_tuple(args, nargs);
  PyObject* dict = tuple ? keywords_as_dict(args + nargs, kwnames) : nullptr;
  PyObject* object = tuple && !PyErr_Occurred() ? cls->tp_new(cls, tuple, dict) : nullptr;
  Py_XDECREF(tuple);
  Py_XDECREF(dict);
  return object;
}

int native_init(PyObject* object, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  PyObject* tuple = args_as_tuple(args, nargs);
  PyObject* dict = tuple ? keywords_as_dict(args + nargs, kwnames) : nullptr;
  const int status = tuple && !PyErr_Occurred() ? Py_TYPE(object)->tp_init(object, tuple, dict) : -1;
  Py_XDECREF(tuple);
  Py_XDECREF(dict);
  return status;
}

PyObject* make_object(Semantics& s, Frame& frame, PyTypeObject* cls, PyObject* const* args, size_t nargs,
                      PyObject* kwnames) {
  if (cls->tp_new != python_slots.make) {
    if (PyType_IsSubtype(cls, &PyType_Type)) s.make_class(frame);
    // object.__new__ looks at arguments only where nobody else takes them.
    if (cls->tp_new == PyBaseObject_Type.tp_new && cls->tp_init != PyBaseObject_Type.tp_init)
      return native_new(cls, nullptr, 0, nullptr);
    return native_new(cls, args, nargs, kwnames);
  }
  PyObject* method = PyObject_GetAttr(reinterpret_cast<PyObject*>(cls), names_of.new_);
  if (!method) return nullptr;
  CallStart start = start_with_self(s, frame, method, reinterpret_cast<PyObject*>(cls), args, nargs, kwnames);
  Py_DECREF(method);
  return start.frame ? run_frame(*start.frame, s) : start.value;
}

/// `__init__` written in Python: its frame will give the object (stolen).
CallStart start_init(Semantics& s, Frame& frame, PyObject* object, PyObject* const* args, size_t nargs,
                     PyObject* kwnames) {
  PyObject* method = _PyType_Lookup(Py_TYPE(object), names_of.init_);
  CallStart start;
  if (method && is_our_function(method)) {
    start = start_with_self(s, frame, method, object, args, nargs, kwnames);
  } else {
    PyObject* bound = PyObject_GetAttr(object, names_of.init_);
    if (bound) start = s.start_call(frame, bound, args, nargs, kwnames);
    Py_XDECREF(bound);
  }
  if (start.frame && !start.frame->instance) {
    start.frame->instance = object;
    return start;
  }
  PyObject* result = start.frame ? run_frame(*start.frame, s) : start.value;
  if (result && result != Py_None) type_error("__init__() should return None, not '%.200s'", result);
  if (!result || result != Py_None) Py_CLEAR(object);
  Py_XDECREF(result);
  return {object, nullptr};
}

/// A class whose `__new__` or `__init__` is Python: what type.__call__ does.
CallStart start_class(Semantics& s, Frame& frame, PyTypeObject* cls, PyObject* const* args, size_t nargs,
                      PyObject* kwnames) {
  PyObject* object = make_object(s, frame, cls, args, nargs, kwnames);
  if (!object) return {};
  if (!PyObject_TypeCheck(object, cls) || !Py_TYPE(object)->tp_init) return {object, nullptr};
  if (Py_TYPE(object)->tp_init == python_slots.init)
    return start_init(s, frame, object, args, nargs, kwnames);
  if (native_init(object, args, nargs, kwnames) < 0) Py_CLEAR(object);
  return {object, nullptr};
}

bool class_is_python(PyTypeObject* cls) {
  return Py_TYPE(cls)->tp_call == PyType_Type.tp_call && cls != &PyType_Type && is_heap_type(cls) &&
         !PyType_HasFeature(cls, Py_TPFLAGS_IS_ABSTRACT) && cls->tp_new &&
         (cls->tp_new == python_slots.make || cls->tp_init == python_slots.init);
}

/// An object (or class, through its metaclass) with `__call__` in Python.
CallStart start_instance(Semantics& s, Frame& frame, PyObject* object, PyObject* const* args, size_t nargs,
                         PyObject* kwnames) {
  PyObject* method = _PyType_Lookup(Py_TYPE(object), names_of.call_);
  if (method && PyFunction_Check(method)) {
    Py_INCREF(method);
    CallStart start = start_with_self(s, frame, method, object, args, nargs, kwnames);
    Py_DECREF(method);
    return start;
  }
  PyObject* bound = method ? lookup_special(object, names_of.call_) : nullptr;
  if (!bound) {
    if (PyErr_Occurred()) return {};
    return {s.call_native(frame, object, args, nargs, kwnames), nullptr};
  }
  if (Py_EnterRecursiveCall(" while calling a Python object")) {
    Py_DECREF(bound);
    return {};
  }
  CallStart start = s.start_call(frame, bound, args, nargs, kwnames);
  Py_LeaveRecursiveCall();
  Py_DECREF(bound);
  return start;
}

}  // namespace

bool is_our_function(PyObject* callable) {
  return PyFunction_Check(callable) &&
         reinterpret_cast<PyFunctionObject*>(callable)->vectorcall == _PyFunction_Vectorcall &&
         !thread_is_traced(thread_state());
}

CallStart start_call(Semantics& s, Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                     PyObject* kwnames) {
  PyTypeObject* type = Py_TYPE(callable);
  if (type == &PyFunction_Type && is_our_function(callable)) {
    return start_function(s, frame, callable, args, nargs, kwnames);
  }
  if (type == &PyMethod_Type) {
    return start_with_self(s, frame, PyMethod_GET_FUNCTION(callable), PyMethod_GET_SELF(callable), args,
                           nargs, kwnames);
  }
  if (!thread_is_traced(thread_state())) {
    if (PyType_Check(callable) && class_is_python(reinterpret_cast<PyTypeObject*>(callable))) {
      return start_class(s, frame, reinterpret_cast<PyTypeObject*>(callable), args, nargs, kwnames);
    }
    if (type->tp_call == python_slots.call) return start_instance(s, frame, callable, args, nargs, kwnames);
    if (reinterpret_cast<PyObject*>(type) == partial_type)
      return start_partial(s, frame, callable, args, nargs, kwnames);
    if (PyObject* target = interpreted_function_target(callable)) {
      return s.start_call(frame, target, args, nargs, kwnames);
    }
    if (may_resume(callable, args, nargs) && !s.is_plain()) {
      Frame* body = start_generator_call(callable, args, nargs, kwnames);
      if (body || PyErr_Occurred()) return {nullptr, body};
    }
  }
  return {s.call_native(frame, callable, args, nargs, kwnames), nullptr};
}

CallStart Semantics::start_call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                PyObject* kwnames) {
  return interp::start_call(*this, frame, callable, args, nargs, kwnames);
}

CallStart Semantics::start_next(Frame& frame, PyObject* iterator) {
  if (may_be_resumed(iterator)) {
    Frame* body = start_resumption(iterator, Py_None, ReturnTo::item);
    if (body || PyErr_Occurred()) return {nullptr, body};
  }
  PyTypeObject* type = Py_TYPE(iterator);
  PyObject* method = type->tp_iternext == python_slots.next ? _PyType_Lookup(type, names_of.next_) : nullptr;
  if (!method || !is_our_function(method)) return {iter_next(frame, iterator), nullptr};
  CallStart start = start_call(frame, method, &iterator, 1, nullptr);
  if (start.frame) start.frame->return_to = ReturnTo::item_call;
  if (start.failed() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
  return start;
}

PyObject* Semantics::call_native(Frame&, PyObject* callable, PyObject* const* args, size_t nargs,
                                 PyObject* kwnames) {
  return PyObject_Vectorcall(callable, args, nargs, kwnames);
}

PyObject* Semantics::call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                          PyObject* kwnames) {
  return run_to_end(*this, start_call(frame, callable, args, nargs, kwnames));
}

PyObject* run_to_end(Semantics& semantics, CallStart start) {
  if (!start.frame) return start.value;
  const bool resumes = start.frame->return_to == ReturnTo::next_call;
  start.frame->return_to = ReturnTo::entry;
  PyObject* result = run_frame(*start.frame, semantics);
  return resumes ? next_call_result(this_thread().sent, result) : result;
}

CallStart to_caller(Semantics& semantics, CallStart start) {
  if (!start.frame || start.frame->return_to == ReturnTo::entry) return start;
  return {run_to_end(semantics, start), nullptr};
}

PyObject* Semantics::make_generator(Frame&, PyFunctionObject* function, PyObject* const* args, size_t nargs,
                                    PyObject* kwnames) {
  if (is_plain()) return PyObject_Vectorcall(reinterpret_cast<PyObject*>(function), args, nargs, kwnames);
  return make_interpreted_generator(function, args, nargs, kwnames);
}

void Semantics::enter_frame(Frame&) {}
void Semantics::leave_frame(Frame&, PyObject*) {}
bool Semantics::before_instruction(Frame&) { return true; }

// -- f(*args, **kwargs)
// -----------------------------------------------------------------------------------------------

namespace {

/// callable(*tuple, **dict) as a vectorcall; the dict's keys are strings.
CallStart start_unpacked(Semantics& s, Frame& frame, PyObject* callable, PyObject* tuple, PyObject* dict) {
  const auto nargs = static_cast<size_t>(PyTuple_GET_SIZE(tuple));
  const Py_ssize_t count = dict ? PyDict_GET_SIZE(dict) : 0;
  Arguments all(nargs + static_cast<size_t>(count));
  all.add(&PyTuple_GET_ITEM(tuple, 0), nargs);
  if (!count) return s.start_call(frame, callable, all.data(), nargs, nullptr);
  PyObject* kwnames = PyTuple_New(count);
  if (!kwnames) return {};
  // The callee may change the dict while it runs, so the values are held.
  std::vector<PyObject*> held;
  Py_ssize_t position = 0, at = 0;
  PyObject *key, *value;
  while (at < count && PyDict_Next(dict, &position, &key, &value)) {
    PyTuple_SET_ITEM(kwnames, at++, Py_NewRef(key));
    held.push_back(Py_NewRef(value));
    all.add(value);
  }
  CallStart start = s.start_call(frame, callable, all.data(), nargs, kwnames);
  for (PyObject* object : held) Py_DECREF(object);
  Py_DECREF(kwnames);
  return start;
}

bool keys_are_strings(PyObject* dict) {
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (!PyUnicode_Check(key)) return false;
  }
  return true;
}

}  // namespace

CallStart start_star_call(Semantics& s, Frame& frame, PyObject* callable, PyObject* args, PyObject* kwargs) {
  PyObject* dict = kwargs ? s.star_kwargs(frame, callable, kwargs) : nullptr;
  if (kwargs && !dict) return {};
  PyObject* tuple = s.star_args(frame, callable, args);
  CallStart start;
  if (tuple && dict && !keys_are_strings(dict)) {
    // An error for nearly every callable; each words it in its own way.
    start.value = PyObject_Call(callable, tuple, dict);
  } else if (tuple) {
    start = start_unpacked(s, frame, callable, tuple, dict);
  }
  Py_XDECREF(tuple);
  Py_XDECREF(dict);
  return start;
}

// -- Entry from outside
// -------------------------------------------------------------------------------------------------

namespace {

/// A frame for Semantics methods to refer to while a call from outside is being unfolded. It is never run or
/// linked.
Frame* make_anchor() {
  static PyObject* const function = make_helper("lambda: None");
  if (!function) return nullptr;
  const Code* prepared = prepare(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function)));
  return prepared ? new_frame(reinterpret_cast<PyFunctionObject*>(function), prepared) : nullptr;
}

}  // namespace

PyObject* call_function(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames,
                        Semantics& semantics) {
  // Called back from native code: the frame that made the native call is the caller.
  if (Frame* frame = current_frame()) return semantics.call(*frame, callable, args, nargs, kwnames);
  Frame* anchor = make_anchor();
  if (!anchor) return nullptr;
  PyObject* result = semantics.call(*anchor, callable, args, nargs, kwnames);
  discard_frame(anchor);
  return result;
}

int init_calls() {
  if (partial_type) return 0;
  if (init_special() < 0) return -1;
  PyObject* functools = PyImport_ImportModule("functools");
  partial_type = functools ? PyObject_GetAttrString(functools, "partial") : nullptr;
  Py_XDECREF(functools);
  return partial_type ? 0 : -1;
}

}  // namespace bolt::interp

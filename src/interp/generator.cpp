// interp/generator.cpp
// Resuming generators and coroutines in our loop; see generator.h.
//
// The steps around a resumption are those of CPython's genobject.c: push the sent value, make the generator's
// own slot for the handled exception the thread's, run, and afterwards either leave the suspended record
// alone or clear it.

#include "interp/generator.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "interp/async_generator.h"
#include "interp/call.h"
#include "interp/run.h"
#include "interp/special.h"

namespace bolt::interp {

namespace {

RawFrame* record_of(PyGenObject* generator) { return reinterpret_cast<RawFrame*>(generator->gi_iframe); }

extern PyTypeObject interpreted_generator_type;

bool is_resumable_type(PyObject* object) {
  return PyGen_CheckExact(object) || PyCoro_CheckExact(object) || PyAsyncGen_CheckExact(object) ||
         Py_IS_TYPE(object, &interpreted_generator_type);
}

/// What can be sent to: those, but for asynchronous generators, whose awaitables can.
bool can_be_sent_to(PyObject* object) {
  if (!may_be_resumed(object)) return false;
  return (is_resumable_type(object) && !PyAsyncGen_CheckExact(object)) ||
         awaitable_kind(object) != Awaitable::none;
}

/// A StopIteration must not leave a generator as such (3.12 does this in bytecode).
void replace_stop_iteration([[maybe_unused]] PyObject* generator) {
#if !BOLT_PY312
  const bool async = PyAsyncGen_CheckExact(generator);
  const char* text = nullptr;
  if (PyErr_ExceptionMatches(PyExc_StopIteration))
    text = PyCoro_CheckExact(generator) ? "coroutine raised StopIteration"
           : async                      ? "async generator raised StopIteration"
                                        : "generator raised StopIteration";
  else if (async && PyErr_ExceptionMatches(PyExc_StopAsyncIteration))
    text = "async generator raised StopAsyncIteration";
  if (text) _PyErr_FormatFromCause(PyExc_RuntimeError, "%s", text);
#endif
}

/// The generator has returned or raised: its record goes.
void clear_record(PyGenObject* generator) {
  Py_CLEAR(generator->gi_exc_state.exc_value);
  generator->gi_frame_state = FRAME_CLEARED;
  release_raw(record_of(generator));
}

/// Runs the body from where it stands until it yields, returns or raises.
PySendResult run_body(Frame* frame, Semantics& semantics, PyObject** result) {
  *result = run_frame(*frame, semantics);
  return this_thread().sent;
}

PyGenObject* as_generator(PyObject* object) { return reinterpret_cast<PyGenObject*>(object); }

}  // namespace

void begin_resumption(PyThreadState* thread, PyObject* object) {
  PyGenObject* generator = as_generator(object);
  generator->gi_exc_state.previous_item = std::exchange(thread->exc_info, &generator->gi_exc_state);
  generator->gi_frame_state = FRAME_EXECUTING;
}

void leave_resumption(PyThreadState* thread, PyObject* object) {
  thread->exc_info = std::exchange(as_generator(object)->gi_exc_state.previous_item, nullptr);
}

PySendResult end_resumption(PyObject* object, PyObject* result) {
  PyGenObject* generator = as_generator(object);
  if (result && generator->gi_frame_state == FRAME_SUSPENDED) return PYGEN_NEXT;
  if (!result) replace_stop_iteration(object);
  PyObject* error = result ? nullptr : take_raised();
  generator->gi_frame_state = FRAME_COMPLETED;
  clear_record(generator);
  if (error) set_raised(error);
  return result ? PYGEN_RETURN : PYGEN_ERROR;
}

void raise_thrown(Frame* frame) {
  PyObject* exception = std::exchange(frame->thrown, nullptr);
  PyObject* handled = as_generator(frame->generator)->gi_exc_state.exc_value;
  if (!handled || handled == Py_None) return set_raised(exception);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
}

void finish_generator(PyObject* object) {
  PyObject* error = PyErr_Occurred() ? take_raised() : nullptr;
  as_generator(object)->gi_frame_state = FRAME_COMPLETED;
  clear_record(as_generator(object));
  if (error) set_raised(error);
}

void finish_body(const Frame& frame) {
  finish_generator(frame.generator);
  if (frame.awaitable) close_awaitable(frame.awaitable);
}

bool can_resume(PyObject* object) {
  if (!is_resumable_type(object)) return false;
  const int state = reinterpret_cast<PyGenObject*>(object)->gi_frame_state;
  return (state == FRAME_CREATED || state == FRAME_SUSPENDED) && !thread_is_traced(thread_state());
}

Frame* start_resumption(PyObject* object, PyObject* value, ReturnTo return_to) {
  if (!may_be_resumed(object)) return nullptr;
  if (awaitable_kind(object) != Awaitable::none) return start_awaitable(object, value, return_to);
  if (!can_resume(object)) return nullptr;
  RawFrame* raw = record_of(as_generator(object));
  if (as_generator(object)->gi_frame_state == FRAME_CREATED && value != Py_None) {
    PyErr_Format(PyExc_TypeError, "can't send non-None value to a just-started %s",
                 PyCoro_CheckExact(object) ? "coroutine" : "generator");
    return nullptr;
  }
  const Code* prepared = prepare(raw->f_code);
  if (!prepared) return nullptr;
  raw->localsplus[raw->stacktop++] = Py_NewRef(value);
  Frame* frame = new_generator_frame(object, prepared);
  if (!frame) return nullptr;
  frame->set_pc(frame->pc() + 1);
  frame->return_to = return_to;
  return frame;
}

Frame* start_throw(PyObject* object, PyObject* exception) {
  RawFrame* raw = record_of(as_generator(object));
  const Code* prepared = prepare(raw->f_code);
  if (!prepared) return nullptr;
  // The loop finds the stack as after a resumption with a value.
  raw->localsplus[raw->stacktop++] = Py_NewRef(Py_None);
  Frame* frame = new_generator_frame(object, prepared);
  if (!frame) return nullptr;
  frame->thrown = Py_NewRef(exception);
  frame->return_to = ReturnTo::next_call;
  return frame;
}

bool is_delegating(PyObject* self) {
  PyObject* target = PyObject_GetAttrString(self, PyCoro_CheckExact(self)       ? "cr_await"
                                                  : PyAsyncGen_CheckExact(self) ? "ag_await"
                                                                                : "gi_yieldfrom");
  const bool delegating = target != Py_None;
  Py_XDECREF(target);
  return delegating;
}

PyObject* thrown_exception(PyObject* const* args, size_t nargs) {
  if (nargs == 1 && PyExceptionInstance_Check(args[0])) return args[0];
  const bool old_form = nargs == 3 && PyExceptionInstance_Check(args[1]) &&
                        reinterpret_cast<PyObject*>(Py_TYPE(args[1])) == args[0] &&
                        (args[2] == Py_None || PyTraceBack_Check(args[2]));
  if (!old_form) return nullptr;
  PyException_SetTraceback(args[1], args[2]);
  return args[1];
}

namespace {

/// "send" of a generator `g`, bound or not; `self` is then g and `first` the index of the first other
/// argument.
const char* generator_method(PyObject* callable, PyObject* const* args, size_t nargs, PyObject** self,
                             size_t* first) {
  if (is_builtin_function(callable)) {
    *self = PyCFunction_GET_SELF(callable);
    *first = 0;
    if (!*self || !can_be_sent_to(*self)) return nullptr;
    return reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  }
  if (!nargs || !Py_IS_TYPE(callable, &PyMethodDescr_Type) || !can_be_sent_to(args[0])) return nullptr;
  *self = args[0];
  *first = 1;
  auto* descriptor = reinterpret_cast<PyMethodDescrObject*>(callable);
  return PyType_IsSubtype(Py_TYPE(*self), PyDescr_TYPE(descriptor)) ? descriptor->d_method->ml_name : nullptr;
}

PyObject* next_function() {
  static PyObject* const next = PyDict_GetItemString(PyEval_GetBuiltins(), "next");
  return next;
}

}  // namespace

PyObject* generator_called(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  if (kwnames || PyFunction_Check(callable)) return nullptr;
  if (callable == next_function()) return nargs && can_be_sent_to(args[0]) ? args[0] : nullptr;
  PyObject* self;
  size_t first;
  return generator_method(callable, args, nargs, &self, &first) ? self : nullptr;
}

Frame* start_generator_call(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  if (kwnames || PyFunction_Check(callable)) return nullptr;
  if (callable == next_function())
    return nargs == 1 ? start_resumption(args[0], Py_None, ReturnTo::next_call) : nullptr;
  PyObject* self;
  size_t first;
  const char* name = generator_method(callable, args, nargs, &self, &first);
  if (!name) return nullptr;
  if (!std::strcmp(name, "send") && nargs == first + 1)
    return start_resumption(self, args[first], ReturnTo::next_call);
  if (std::strcmp(name, "throw") || !can_resume(self) || is_delegating(self)) return nullptr;
  PyObject* exception = thrown_exception(args + first, nargs - first);
  return exception ? start_throw(self, exception) : nullptr;
}

PySendResult resume_generator(PyObject* object, PyObject* value, Semantics& semantics, PyObject** result) {
  Frame* frame = start_resumption(object, value, ReturnTo::entry);
  return frame ? run_body(frame, semantics, result) : PYGEN_ERROR;
}

// -- States
// -----------------------------------------------------------------------------------------------------------

PyCodeObject* generator_code(PyObject* object) {
#if BOLT_PY312
  PyCodeObject* code = PyGen_GetCode(as_generator(object));
  Py_DECREF(code);  // the generator holds it
  return code;
#else
  return as_generator(object)->gi_code;
#endif
}

PyObject* generator_handled(PyObject* object) {
  PyObject* exception = as_generator(object)->gi_exc_state.exc_value;
  return exception == Py_None ? nullptr : exception;
}

GeneratorState generator_state(PyObject* object, const Frame* body) {
  PyGenObject* generator = as_generator(object);
  GeneratorState state;
  state.frame_state = generator->gi_frame_state;
  if (PyAsyncGen_CheckExact(object)) {
    state.asked = generator->gi_hooks_inited;
    state.closed = generator->gi_closed;
    state.running = generator->gi_running_async;
  }
  if (state.frame_state >= FRAME_COMPLETED) return state;
  RawFrame* raw = record_of(generator);
  const int locals = raw->f_code->co_nlocalsplus;
  const int top = body ? static_cast<int>(body->sp - raw->localsplus) : raw->stacktop;
  state.pc = static_cast<int>(raw->prev_instr - _PyCode_CODE(raw->f_code));
  state.function = reinterpret_cast<PyObject*>(raw_function(raw));
  state.handled = generator->gi_exc_state.exc_value;
  state.locals.assign(raw->localsplus, raw->localsplus + locals);
  state.stack.assign(raw->localsplus + locals, raw->localsplus + top);
  return state;
}

void set_generator_state(PyObject* object, const GeneratorState& state) {
  PyGenObject* generator = as_generator(object);
  if (PyAsyncGen_CheckExact(object)) {
    generator->gi_hooks_inited = state.asked;
    generator->gi_closed = state.closed;
    generator->gi_running_async = state.running;
  }
  if (state.frame_state >= FRAME_COMPLETED) {
    if (generator->gi_frame_state < FRAME_COMPLETED) finish_generator(object);
    return;
  }
  RawFrame* raw = record_of(generator);
  // Of one that is running, in a run further out, only the locals are known.
  const int top = raw->stacktop < 0 ? raw->f_code->co_nlocalsplus : raw->stacktop;
  const std::vector<PyObject*> old(raw->localsplus, raw->localsplus + top);
  PyObject** to = raw->localsplus;
  for (PyObject* value : state.locals) *to++ = Py_XNewRef(value);
  for (PyObject* value : state.stack) *to++ = Py_XNewRef(value);
  raw->stacktop = static_cast<int>(to - raw->localsplus);
  raw->prev_instr = _PyCode_CODE(raw->f_code) + state.pc;
  generator->gi_frame_state = state.frame_state;
  Py_XSETREF(generator->gi_exc_state.exc_value, Py_XNewRef(state.handled));
  for (PyObject* value : old) Py_XDECREF(value);
}

PyObject* make_bare_generator(PyObject* object) {
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  // Binding succeeds when every parameter is given; the body does not start.
  const size_t nargs = static_cast<size_t>(code->co_argcount);
  std::vector<PyObject*> nothing(nargs + static_cast<size_t>(code->co_kwonlyargcount), Py_None);
  PyObject* names = code->co_kwonlyargcount ? PyTuple_New(code->co_kwonlyargcount) : nullptr;
  for (int i = 0; names && i < code->co_kwonlyargcount; ++i)
    PyTuple_SET_ITEM(names, i, Py_NewRef(PyTuple_GET_ITEM(code->co_localsplusnames, code->co_argcount + i)));
  PyObject* made = make_interpreted_generator(function, nothing.data(), nargs, names);
  Py_XDECREF(names);
  return made;
}

bool is_only_advanced(PyObject* receiver, PyObject* value) {
  const PyAsyncMethods* methods = Py_TYPE(receiver)->tp_as_async;
  return value == Py_None && !(methods && methods->am_send) && PyIter_Check(receiver) &&
         awaitable_kind(receiver) == Awaitable::none;
}

Frame* Semantics::start_send(Frame&, PyObject* receiver, PyObject* value) {
  return start_resumption(receiver, value, ReturnTo::sent);
}

PySendResult Semantics::send(Frame& frame, PyObject* receiver, PyObject* value, PyObject** result) {
  if (can_be_sent_to(receiver)) {
    Frame* body = start_resumption(receiver, value, ReturnTo::entry);
    if (body) return run_body(body, *this, result);
    if (PyErr_Occurred()) return PYGEN_ERROR;
  }
  if (!is_only_advanced(receiver, value)) return PyIter_Send(receiver, value, result);
  *result = advance(frame, receiver);
  if (*result) return PYGEN_NEXT;
  return _PyGen_FetchStopIterationValue(result) == 0 ? PYGEN_RETURN : PYGEN_ERROR;
}

// -- The subtype whose consumers come back to us
// ------------------------------------------------------------------------

namespace {

PySendResult generator_send(PyObject* self, PyObject* value, PyObject** result) {
  Semantics* semantics = current_semantics();
  this_thread().budget =
      0;  // CPython looks at its eval breaker at each resumption: a signal is raised in here
  if (semantics && can_resume(self)) return resume_generator(self, value, *semantics, result);
  return PyGen_Type.tp_as_async->am_send(self, value, result);
}

/// A value, or null: with StopIteration set when `explicit_stop` or the generator returned something.
PyObject* as_step(PySendResult status, PyObject* result, bool explicit_stop) {
  if (status != PYGEN_RETURN) return result;
  if (result == Py_None) {
    if (explicit_stop) PyErr_SetNone(PyExc_StopIteration);
  } else {
    _PyGen_SetStopIterationValue(result);
  }
  Py_DECREF(result);
  return nullptr;
}

PyObject* generator_next(PyObject* self) {
  Semantics* semantics = current_semantics();
  if (!semantics || !can_resume(self)) return PyGen_Type.tp_iternext(self);
  PyObject* result = nullptr;
  const PySendResult status = resume_generator(self, Py_None, *semantics, &result);
  return as_step(status, result, false);
}

PyObject* generator_send_method(PyObject* self, PyObject* value) {
  PyObject* result = nullptr;
  const PySendResult status = generator_send(self, value, &result);
  return as_step(status, result, true);
}

PyObject* generator_throw(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  Semantics* semantics = current_semantics();
  PyObject* exception = semantics && can_resume(self) && !is_delegating(self)
                            ? thrown_exception(args, static_cast<size_t>(nargs))
                            : nullptr;
  if (!exception) {
    // CPython does it on the same record.
    PyObject* method = PyDict_GetItemString(type_dict(&PyGen_Type), "throw");
    PyObject* bound = Py_TYPE(method)->tp_descr_get(method, self, reinterpret_cast<PyObject*>(Py_TYPE(self)));
    PyObject* result =
        bound ? PyObject_Vectorcall(bound, args, static_cast<size_t>(nargs), nullptr) : nullptr;
    Py_XDECREF(bound);
    return result;
  }
  Frame* frame = start_throw(self, exception);
  if (!frame) return nullptr;
  frame->return_to = ReturnTo::entry;
  PyObject* result = nullptr;
  const PySendResult status = run_body(frame, *semantics, &result);
  return as_step(status, result, true);
}

PyMethodDef generator_methods[] = {
    {"send", generator_send_method, METH_O, "send(value) -> next yielded value, or raise StopIteration."},
    {"throw", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(generator_throw)), METH_FASTCALL,
     "throw(exception) -> next yielded value, or raise StopIteration."},
    {nullptr, nullptr, 0, nullptr},
};

/// What Python code compares with types.GeneratorType.
PyObject* generator_class(PyObject*, void*) { return Py_NewRef(reinterpret_cast<PyObject*>(&PyGen_Type)); }

PyGetSetDef generator_getset[] = {{"__class__", generator_class, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyAsyncMethods generator_async = {nullptr, nullptr, nullptr, generator_send};

PyTypeObject interpreted_generator_type{};

}  // namespace

PyObject* next_call_result(PySendResult status, PyObject* result) { return as_step(status, result, true); }

bool is_interpreted_generator(PyObject* object) { return Py_IS_TYPE(object, &interpreted_generator_type); }

PyObject* make_interpreted_generator(PyFunctionObject* function, PyObject* const* args, size_t nargs,
                                     PyObject* kwnames) {
  PyObject* object = PyObject_Vectorcall(reinterpret_cast<PyObject*>(function), args, nargs, kwnames);
  // Nobody else has seen the fresh object, and both types have the same layout. What is awaited CPython wants
  // exact.
  const bool awaited = reinterpret_cast<PyCodeObject*>(function->func_code)->co_flags & CO_ITERABLE_COROUTINE;
  if (object && PyGen_CheckExact(object) && !awaited) Py_SET_TYPE(object, &interpreted_generator_type);
  return object;
}

int init_generators() {
  PyTypeObject& type = interpreted_generator_type;
  if (type.tp_name) return 0;
  if (check_awaitables() < 0) return -1;
  Py_SET_REFCNT(&type, 1);
  type.tp_name = "generator";
  type.tp_base = &PyGen_Type;
  type.tp_basicsize = PyGen_Type.tp_basicsize;
  type.tp_itemsize = PyGen_Type.tp_itemsize;
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_iternext = generator_next;
  type.tp_as_async = &generator_async;
  type.tp_methods = generator_methods;
  type.tp_getset = generator_getset;
  return PyType_Ready(&type);
}

}  // namespace bolt::interp

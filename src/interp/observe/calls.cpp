// interp/observe/calls.cpp
// Recording of calls: what a callable is made of is guarded, native ones are treated by their row in the
// table.

#include "interp/call.h"

#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "interp/observe/controls.h"
#include "interp/observe/recording.h"
#include "interp/special.h"

namespace bolt::observe {

using interp::CallStart;
using interp::names_of;
using interp::python_slots;
using interp::Semantics;

namespace {

/// functools.partial's fields (CPython keeps the struct private).
struct PartialObject {
  PyObject_HEAD PyObject* function;
  PyObject *args, *keywords;
};

bool is_cached_function(PyObject* object) {
  return std::string(Py_TYPE(object)->tp_name) == "functools._lru_cache_wrapper";
}

/// Natives that loop over their arguments, so that a Python `__iter__` there can be run by us beforehand.
bool loops_over_arguments(const CFunction& row) {
  static const std::unordered_set<std::string> names = {"builtins.all",
                                                        "builtins.any",
                                                        "builtins.sum",
                                                        "builtins.min",
                                                        "builtins.max",
                                                        "builtins.sorted",
                                                        "list",
                                                        "tuple",
                                                        "set",
                                                        "frozenset",
                                                        "enumerate",
                                                        "zip",
                                                        "map",
                                                        "filter",
                                                        "collections.deque",
                                                        "itertools.chain",
                                                        "itertools.islice",
                                                        "itertools.product",
                                                        "itertools.accumulate",
                                                        "itertools.zip_longest",
                                                        "itertools.pairwise",
                                                        "list.extend",
                                                        "set.update",
                                                        "str.join",
                                                        "_functools.reduce"};
  return names.count(row.name) != 0;
}

/// The argument of functools.reduce that is no iterable.
bool is_start(const CFunction& row, const std::vector<PyObject*>& passed, PyObject* const* arg) {
  return row.name == "_functools.reduce" && arg == &passed[2];
}

/// Natives that hand on what they are given, or keep it, without reading numbers in it.
bool hands_on(const CFunction& row) {
  static const std::unordered_set<std::string> names = {"builtins.isinstance",
                                                        "tuple",
                                                        "list",
                                                        "torch.Size",
                                                        "zip",
                                                        "enumerate",
                                                        "reversed",
                                                        "slice",
                                                        "itertools.chain",
                                                        "itertools.zip_longest",
                                                        "itertools.pairwise",
                                                        "itertools.product",
                                                        "functools.partial",
                                                        "type",
                                                        "type.__instancecheck__",
                                                        "_abc._abc_instancecheck",
                                                        "builtins.getattr",
                                                        "builtins.setattr",
                                                        "object.__setattr__",
                                                        "module.__setattr__",
                                                        "torch._C.TensorBase.__setattr__",
                                                        "dict.get",
                                                        "dict.pop",
                                                        "dict.setdefault",
                                                        "collections.OrderedDict.get",
                                                        "collections.OrderedDict.pop",
                                                        "collections.OrderedDict.setdefault",
                                                        "_contextvars.ContextVar.set"};
  return names.count(row.name) != 0;
}

// -- Python code that CPython runs while a native call lasts
// ----------------------------------------------------------

thread_local NativeWatch* watched = nullptr;

/// Python that torch registers for operators: functions of their arguments.
bool is_decomposition(const std::string& file) {
  for (const char* folder : {"/torch/_decomp/", "/torch/_refs/", "/torch/_prims/", "/torch/_prims_common/",
                             "/torch/fx/experimental/symbolic_shapes.py"})
    if (file.find(folder) != std::string::npos) return true;
  return file.size() >= 18 && file.compare(file.size() - 18, 18, "/torch/__init__.py") == 0;  // torch._check
}

bool is_harmless(PyCodeObject* code) {
  std::string name = PyUnicode_AsUTF8(code->co_name), file = PyUnicode_AsUTF8(code->co_filename);
  auto ends_with = [&](const char* tail) {
    std::string suffix = tail;
    return file.size() >= suffix.size() &&
           file.compare(file.size() - suffix.size(), suffix.size(), suffix) == 0;
  };
  // Finalisers, caches of weak references, abstract base classes: state that no region depends on.
  // And imports: a module's body runs once in a process.
  // Default devices: the operators that come of them are recorded, and which device it is is guarded.
  // A tensor's hash is its identity, and a set or dict gives nothing else of it away.
  return name == "__del__" || name == "<module>" || (name == "__hash__" && ends_with("torch/_tensor.py")) ||
         file.rfind("<frozen importlib", 0) == 0 || ends_with("weakref.py") || ends_with("_weakrefset.py") ||
         ends_with("abc.py") || file == "<frozen abc>" || file == "<frozen _collections_abc>" ||
         ends_with("enum.py") || ends_with("torch/utils/_device.py") || is_decomposition(file);
}

_PyFrameEvalFunction below_us = _PyEval_EvalFrameDefault;

PyObject* watching_eval(PyThreadState* thread, _PyInterpreterFrame* frame, int throwing) {
  if (watched) watched->entered(frame->f_code);
  return below_us(thread, frame, throwing);
}

}  // namespace

bool is_partial(PyObject* object) { return std::strcmp(Py_TYPE(object)->tp_name, "functools.partial") == 0; }

NativeWatch::NativeWatch(const RecorderHooks& hooks) : hooks_(hooks), frame_(interp::current_frame()) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  previous_ = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (previous_ != watching_eval) below_us = previous_;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, watching_eval);
  outer_ = watched;
  watched = this;
}

NativeWatch::~NativeWatch() {
  watched = outer_;
  // Whoever came in between (torch.compile) takes itself away again.
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) == watching_eval)
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous_);
}

void NativeWatch::entered(PyCodeObject* code) {
  // Called by the native function itself, or by code of ours that it led to? The latter has its own watches.
  if (!seen_.empty() || interp::current_frame() != frame_ || hooks_.in_operator() || is_harmless(code))
    return;
  seen_ = std::string(PyUnicode_AsUTF8(code->co_filename)) + ":" + PyUnicode_AsUTF8(code->co_name);
}

// -- What a callable is made of
// ----------------------------------------------------------------------------------------

void Recording::note_class(PyTypeObject* cls) {
  if (interp::is_heap_type(Py_TYPE(cls))) world.type_attr(Py_TYPE(cls), names_of.call_);
  if (!interp::is_heap_type(cls)) return;
  world.type_attr(cls, names_of.new_);
  world.type_attr(cls, names_of.init_);
}

void Recording::note_callable(PyObject* callable) {
  if (PyFunction_Check(callable)) return world.note_function(callable);
  if (PyMethod_Check(callable)) {
    if (!world.find(callable)) return;
    world.field(callable, offsetof(PyMethodObject, im_func), interned("__func__"));
    world.field(callable, offsetof(PyMethodObject, im_self), interned("__self__"));
  } else if (PyType_Check(callable)) {
    note_class(reinterpret_cast<PyTypeObject*>(callable));
  } else if (is_partial(callable)) {
    note_callable(world.field(callable, offsetof(PartialObject, function), interned("func")));
    world.read_whole(world.field(callable, offsetof(PartialObject, args), interned("args")));
    world.read_whole(world.field(callable, offsetof(PartialObject, keywords), interned("keywords")));
  } else if (interp::is_heap_type(Py_TYPE(callable))) {
    world.type_attr(Py_TYPE(callable), names_of.call_);
  }
}

namespace {

PyTypeObject* transparent_type = nullptr;
Py_ssize_t transparent_offset = 0;

}  // namespace

bool& breaks_are_errors() {
  static thread_local bool yes = false;
  return yes;
}

/// Its body is the author's business: nothing of it is interpreted or guarded, only what it is given.
PyObject* Recording::call_allowed(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                  PyObject* kwnames) {
  const size_t total = nargs + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  for (size_t i = 0; on && i < total; ++i) world.use(args[i]), touch(frame, args[i], true);
  if (on) mark(frame);
  PyObject* result = PyObject_Vectorcall(callable, args, nargs, kwnames);
  end_if_wanted(frame);
  return result;
}

PyObject* Recording::call_for_constant(PyObject* callable, PyObject* const* args, size_t nargs,
                                       PyObject* kwnames) {
  hooks_.pause(true);
  PyObject* result = PyObject_Vectorcall(callable, args, nargs, kwnames);
  hooks_.pause(false);
  if (result) world.reached(result, world.tree->constant(result));
  return result;
}

void see_through(PyTypeObject* type, Py_ssize_t offset) {
  transparent_type = type;
  transparent_offset = offset;
}

/// Another function with the same arguments; `self` (may be null) before them.
CallStart Recording::call_instead(Frame& frame, PyObject* by, PyObject* self, PyObject* const* args,
                                  size_t nargs, PyObject* kwnames) {
  if (!world.find(by)) world.pin(by);
  std::vector<PyObject*> all;
  if (self) all.push_back(self);
  all.insert(all.end(), args, args + nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  note_callable(by);
  // A stand-in may call what it stands for.
  return interp::start_call(*this, frame, by, all.data(), nargs + (self ? 1 : 0), kwnames);
}

CallStart Recording::start_call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                PyObject* kwnames) {
  if (!on) return interp::start_call(*this, frame, callable, args, nargs, kwnames);
  note_callable(callable);
  const Controlled found = control_of(callable);
  switch (found.control) {
    case Control::none: break;
    case Control::asks_whether_compiling:
      if (asks_for_eager(frame.func()->func_globals)) break;
      return {Py_NewRef(Py_True), nullptr};
    case Control::ignored: return {Py_NewRef(Py_None), nullptr};
    case Control::allowed:
      return {call_allowed(frame, found.itself(callable), args, nargs, kwnames), nullptr};
    case Control::constant: return {call_for_constant(found.itself(callable), args, nargs, kwnames), nullptr};
    case Control::substituted: return call_instead(frame, found.by, nullptr, args, nargs, kwnames);
    case Control::stand_in:
      return call_instead(frame, found.by, PyCFunction_GET_SELF(callable), args, nargs, kwnames);
    case Control::apart: {
      auto* function = reinterpret_cast<PyFunctionObject*>(found.itself(callable));
      PyObject* module = PyDict_GetItemWithError(function->func_globals, interned("__name__"));
      end_here(frame, std::string("calls ") + PyUnicode_AsUTF8(module) + "." +
                          PyUnicode_AsUTF8(function->func_name));
      return {PyObject_Vectorcall(found.itself(callable), args, nargs, kwnames), nullptr};
    }
    case Control::ends_region: end_here(frame, "graph_break() is called"); break;
    case Control::disabled: {
      auto* function = reinterpret_cast<PyFunctionObject*>(callable);
      std::string name = PyUnicode_AsUTF8(function->func_qualname);
      PyObject* reason = PyDict_GetItemWithError(function->func_dict, interned("_torchbolt_disable"));
      end_here(frame,
               "calls " + name + ", which is disabled" +
                   (reason && PyUnicode_Check(reason) ? std::string(": ") + PyUnicode_AsUTF8(reason) : ""));
      return {PyObject_Vectorcall(callable, args, nargs, kwnames), nullptr};
    }
  }
  if (PyErr_Occurred()) return {};
  if (Py_IS_TYPE(callable,
                 &Py_GenericAliasType)) {  // list[int](...): the class itself, as long as it is a C one
    PyRef origin = PyRef::steal(PyObject_GetAttrString(callable, "__origin__"));
    if (origin && PyType_Check(origin.get()) &&
        !interp::is_heap_type(reinterpret_cast<PyTypeObject*>(origin.get())))
      return start_call(frame, origin.get(), args, nargs, kwnames);
    PyErr_Clear();
  }
  if (transparent_type && Py_IS_TYPE(callable, transparent_type))
    return start_call(frame, world.field(callable, transparent_offset, interned("__wrapped__")), args, nargs,
                      kwnames);
  return interp::start_call(*this, frame, callable, args, nargs, kwnames);
}

// -- Native calls
// ------------------------------------------------------------------------------------------------------

PyObject* Recording::run_native(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames,
                                const std::string& name) {
  NativeWatch watch(hooks_);
  PyObject* result = PyObject_Vectorcall(callable, args, nargs, kwnames);
  if (!watch.seen().empty()) world.distrust("CPython ran " + watch.seen() + " during a call of " + name);
  return result;
}

/// An argument that a result is remembered for must be the same in later calls.
void Recording::use_as_key(Frame& frame, PyObject* object) {
  world.use(object);
  if (guard::is_leaf(object)) return;
  Known* known = world.find(object);
  if (PyTuple_CheckExact(object)) {
    world.read_whole(object);
    for (Py_ssize_t i = 0; on && i < PyTuple_GET_SIZE(object); ++i)
      use_as_key(frame, PyTuple_GET_ITEM(object, i));
  } else if (known) {
    known->source->assume(Check::is, object);
  } else if (!PyType_Check(object) && !PyModule_Check(object)) {
    end_here(frame, std::string("a cached function is called with a new ") + Py_TYPE(object)->tp_name);
  }
}

PyObject* Recording::call_native(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                 PyObject* kwnames) {
  if (!on) return Semantics::call_native(frame, callable, args, nargs, kwnames);
  size_t total = nargs + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  // A cached function's result depends on its arguments only: that is what its author says.
  if (is_cached_function(callable)) {
    for (size_t i = 0; on && i < total; ++i) use_as_key(frame, args[i]);
    return on ? call_for_constant(callable, args, nargs, kwnames)
              : Semantics::call_native(frame, callable, args, nargs, kwnames);
  }
  PyObject* self;
  const CFunction& row = find_cfunction(callable, &self);
  std::vector<PyObject*> all;  // with self first
  if (self) all.push_back(self);
  all.insert(all.end(), args, args + total);
  if (!kwnames && all.size() == nargs + (self ? 1 : 0)) {
    PyObject* number = take_data(frame, row, all);
    if (number || PyErr_Occurred()) return number;
  }
  if (world.follows() && on) {
    bool handled = false;
    PyObject* result = size_call(frame, row, callable, args, nargs, kwnames, all, &handled);
    if (handled) return result;
  }
  // Putting a number into a list reads nothing of it, nor does asking for its type; whatever else is native
  // may. Operations in disguise look inside their operands by themselves.
  const bool special = row.kind == Kind::special;
  if (row.kind != Kind::appends && !hands_on(row))
    for (PyObject* each : all)
      if (!special || is_number(each)) world.use(each);
  if (!on) return Semantics::call_native(frame, callable, args, nargs, kwnames);
  if (row.kind == Kind::special) {
    bool handled = false;
    PyObject* result =
        call_specially(*this, frame, row, all.data(), nargs + (self ? 1 : 0), kwnames, &handled);
    if (handled || !on)
      return handled ? result : Semantics::call_native(frame, callable, args, nargs, kwnames);
  }
  if (row.kind == Kind::ends || row.kind == Kind::unknown) {
    end_here(frame,
             (row.kind == Kind::ends ? "calls " : "calls a C function that is not known: ") + row.name);
    return Semantics::call_native(frame, callable, args, nargs, kwnames);
  }
  if (row.kind == Kind::tensor)
    for (PyObject* each : all) {
      end_if_overridden(frame, each);
      if (!PyList_CheckExact(each) && !PyTuple_CheckExact(each)) continue;
      for (Py_ssize_t i = 0; on && i < Py_SIZE(each); ++i)
        end_if_overridden(frame, PySequence_Fast_GET_ITEM(each, i));
    }
  bool deep = row.kind == Kind::deep || row.kind == Kind::tensor;
  bool writes = row.kind == Kind::writes || row.kind == Kind::appends;
  for (size_t i = writes || row.kind == Kind::special ? 1 : 0; on && i < all.size(); ++i)
    touch(frame, all[i], deep);
  if (on && writes && !all.empty()) world.about_to_write(all[0], row.kind == Kind::appends);
  if (!on) return Semantics::call_native(frame, callable, args, nargs, kwnames);

  // C code must not meet Python functions and Python iterables as they are: it would have CPython run them.
  std::vector<PyRef> replaced;
  std::vector<PyObject*> passed(args, args + total);
  for (PyObject*& arg : passed) {
    PyRef stand_in;
    if (row.callbacks && (interp::is_our_function(arg) || is_partial(arg) || PyMethod_Check(arg)))
      stand_in = PyRef::steal(interp::make_interpreted_function(arg));
    else if (Py_TYPE(arg)->tp_iter == python_slots.iter && loops_over_arguments(row) &&
             !is_start(row, passed, &arg))
      stand_in = PyRef::steal(get_iter(frame, arg));
    if (PyErr_Occurred()) return nullptr;
    if (!stand_in) continue;
    arg = stand_in.get();
    replaced.push_back(std::move(stand_in));
  }
  mark(frame);
  PyObject* result = run_native(callable, passed.data(), nargs, kwnames, row.name);
  if (result && world.follows() && row.kind == Kind::tensor) sizes_seen(row, all, result);
  end_if_wanted(frame);
  return result;
}

}  // namespace bolt::observe

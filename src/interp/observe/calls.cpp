// interp/observe/calls.cpp
// Recording of calls: what a callable is made of is guarded, native ones are treated by their row in the
// table.

#include "interp/call.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "interp/generator.h"
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

// CPython keeps these private to bltinmodule.c.
struct MapObject {
  PyObject_HEAD PyObject *iterators, *function;
};
struct FilterObject {
  PyObject_HEAD PyObject *function, *iterator;
};

bool calls_python(PyObject* object) {
  if (PyObject* function = interp::interpreted_function_target(object)) object = function;
  return PyFunction_Check(object) || PyMethod_Check(object) || is_partial(object);
}

/// A map or filter whose function is Python.
bool calls_python_for_items(PyObject* object) {
  if (Py_IS_TYPE(object, &PyMap_Type)) return calls_python(reinterpret_cast<MapObject*>(object)->function);
  return Py_IS_TYPE(object, &PyFilter_Type) &&
         calls_python(reinterpret_cast<FilterObject*>(object)->function);
}

/// Going through it runs Python code. (A tensor's `__iter__` is Python, but nothing a region would end in.)
bool iterates_in_python(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (guard::is_tensor(object)) return false;
  return PyGen_Check(object) || type->tp_iter == python_slots.iter ||
         type->tp_iternext == python_slots.next || calls_python_for_items(object);
}
bool leads_to_python(PyObject* object) { return iterates_in_python(object) || calls_python(object); }

/// Is argument `index` (self apart) of such a native what it goes through?
bool goes_through(const CFunction& row, size_t index, size_t nargs) {
  static const std::unordered_set<std::string> all = {
      "zip", "map", "filter", "itertools.chain", "itertools.product", "itertools.zip_longest", "set.update"};
  if (!loops_over_arguments(row)) return false;
  if (all.count(row.name)) return true;
  if (row.name == "_functools.reduce") return index == 1;
  if (row.name == "builtins.max" || row.name == "builtins.min") return index == 0 && nargs == 1;
  return index == 0;
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

namespace {

/// A native call that would run Python code (any(generator), sorted(key=f)): the function of
/// torchbolt.stand_ins that does the same in Python, so that a region can end inside; `all` is then what it
/// is given. Null: there is none.
PyObject* stand_in_for(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames,
                       std::vector<PyObject*>& all) {
  const bool function = PyCFunction_Check(callable);
  // Not classes in Python: their objects are more than the native base's.
  const bool cls = PyType_Check(callable) && !interp::is_heap_type(reinterpret_cast<PyTypeObject*>(callable));
  if (!function && !cls && !Py_IS_TYPE(callable, &PyMethodDescr_Type)) return nullptr;
  const size_t total = nargs + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  const bool python = std::any_of(args, args + total, leads_to_python);
  if (!python && !function) return nullptr;
  PyObject* self;
  const CFunction& row = find_cfunction(callable, &self);
  const size_t first = function || cls ? 0 : 1;  // a method descriptor is given self
  bool loops = false;
  for (size_t i = first; i < nargs; ++i)
    loops |= iterates_in_python(args[i]) && goes_through(row, i - first, nargs - first);
  if (!loops && !(row.callbacks && std::any_of(args, args + total, calls_python))) return nullptr;
  if (self && !PyType_Check(callable)) all.push_back(self);
  all.insert(all.end(), args, args + total);
  return stand_in(row.name);
}

/// What breakpoint() calls, where that is a Python function of the user's: borrowed, or null.
PyObject* breakpoint_hook(World& world, PyObject* callable) {
  if (!PyCFunction_Check(callable)) return nullptr;
  if (std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "breakpoint") != 0)
    return nullptr;
  PyObject* self;
  if (find_cfunction(callable, &self).name != "builtins.breakpoint") return nullptr;
  PyRef sys = PyRef::steal(PyImport_ImportModule("sys"));
  if (!sys) return nullptr;
  world.pin(sys.get());
  PyObject* hook = world.dict_get(world.instance_dict(sys.get()), interned("breakpointhook"));
  return hook && PyFunction_Check(hook) ? hook : nullptr;
}

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

/// The next item of a map or filter whose function is Python. Neither frame nor value nor exception: it is
/// none.
CallStart Recording::start_next_of_callback(Frame& frame, PyObject* iterator) {
  if (!calls_python_for_items(iterator)) return {};
  const bool map = Py_IS_TYPE(iterator, &PyMap_Type);
  PyObject* next = stand_in(map ? "next map" : "next filter");
  if (!next) return {};
  world.pin(next);
  world.note_function(next);
  PyObject* function = world.field(
      iterator, map ? offsetof(MapObject, function) : offsetof(FilterObject, function), interned("function"));
  if (PyObject* target = interp::interpreted_function_target(function)) function = target;
  PyObject* rest =
      world.field(iterator, map ? offsetof(MapObject, iterators) : offsetof(FilterObject, iterator),
                  interned("iterators"));
  PyObject* args[] = {function, rest};
  CallStart start = interp::start_call(*this, frame, next, args, 2, nullptr);
  if (start.frame) start.frame->return_to = interp::ReturnTo::item_call;
  return start;
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
  std::vector<PyObject*> all;
  if (PyObject* stand_in = stand_in_for(callable, args, nargs, kwnames, all)) {
    world.pin(stand_in);
    world.note_function(stand_in);
    const size_t named = kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0;
    return interp::start_call(*this, frame, stand_in, all.data(), all.size() - named, kwnames);
  }
  PyObject* shown = nullptr;
  if (delay(frame, callable, args, nargs, kwnames, &shown)) return {shown, nullptr};
  if (PyObject* hook = on ? breakpoint_hook(world, callable) : nullptr) {
    note_callable(hook);
    return interp::start_call(*this, frame, hook, args, nargs, kwnames);
  }
  PyObject* generator = interp::generator_called(callable, args, nargs, kwnames);
  if (generator && is_outside(generator)) end_here(frame, "a generator from outside is advanced");
  if (PyErr_Occurred()) return {};
  return interp::start_call(*this, frame, callable, args, nargs, kwnames);
}

// -- Native calls
// ------------------------------------------------------------------------------------------------------

PyObject* Recording::run_native(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames,
                                const std::string& name) {
  NativeWatch watch(hooks_);
  PyObject* result = PyObject_Vectorcall(callable, args, nargs, kwnames);
  if (!watch.seen().empty() && on) {
    const std::string why = "CPython ran " + watch.seen() + " during a call of " + name;
    PyObject* raised = PyErr_Occurred() ? interp::take_raised() : nullptr;
    end_here(*interp::current_frame(), why);
    not_past_here(*interp::current_frame(), why);
    if (raised) interp::set_raised(raised);
  }
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
    if (!number && !PyErr_Occurred()) number = early_call(row, callable, all, self, kwnames);
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
    for (PyObject* each : all) special ? world.use_scalar(each) : world.use(each);
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
  const size_t first = Py_IS_TYPE(callable, &PyMethodDescr_Type) && nargs ? 1 : 0;
  for (PyObject*& arg : passed) {
    PyRef stand_in;
    if (row.callbacks && (interp::is_our_function(arg) || is_partial(arg) || PyMethod_Check(arg)))
      stand_in = PyRef::steal(interp::make_interpreted_function(arg));
    else if (Py_TYPE(arg)->tp_iter == python_slots.iter &&
             goes_through(row, static_cast<size_t>(&arg - passed.data()) - first, nargs - first))
      stand_in = PyRef::steal(get_iter(frame, arg));
    if (PyErr_Occurred()) return nullptr;
    if (!stand_in) continue;
    arg = stand_in.get();
    replaced.push_back(std::move(stand_in));
  }
  mark(frame);
  PyObject* result = run_native(callable, passed.data(), nargs, kwnames, row.name);
  if (result && world.follows() && row.kind == Kind::tensor) sizes_seen(row, all, result);
  if (on && result && row.kind == Kind::tensor && hooks_.wants_end() && !self &&
      late_operator(callable, all, kwnames, result, frame))
    return result;
  end_if_wanted(frame);
  return result;
}

}  // namespace bolt::observe

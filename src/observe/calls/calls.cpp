// observe/calls/calls.cpp
// A callable with its arguments -> guards on what it is made of, and who is run for it: itself, or something
// in its place. Everything that is called comes through here (Recording::start_call); native callables go on
// to native_calls.cpp.

#include "guard/transforms.h"
#include "interp/call.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "interp/generator.h"
#include "observe/calls/controls.h"
#include "observe/calls/native_watch.h"
#include "observe/calls/numpy_draws.h"
#include "observe/ends/frames.h"
#include "observe/recording.h"
#include "observe/values/arrays.h"
#include "observe/values/draws.h"
#include "observe/values/late.h"
#include "python/slots.h"

namespace bolt::observe {

using interp::CallStart;

namespace {

/// functools.partial's fields (CPython keeps the struct private).
struct PartialObject {
  PyObject_HEAD PyObject* function;
  PyObject *args, *keywords;
};

// CPython keeps these private to bltinmodule.c.
struct MapObject {
  PyObject_HEAD PyObject *iterators, *function;
};
struct FilterObject {
  PyObject_HEAD PyObject *function, *iterator;
};

/// A map or filter: its function may be Python, and one of C is not to meet numbers that differ between calls
/// unseen.
bool calls_for_items(PyObject* object) {
  return Py_IS_TYPE(object, &PyMap_Type) || Py_IS_TYPE(object, &PyFilter_Type);
}

/// Going through it runs Python code. (A tensor's `__iter__` is Python, but nothing a region would end in.)
bool iterates_in_python(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (guard::is_tensor(object)) return false;
  return PyGen_Check(object) || type->tp_iter == python_slots.iter ||
         type->tp_iternext == python_slots.next || calls_for_items(object);
}

constexpr int kDeepestPartial = 100;

PyTypeObject* transparent_type = nullptr;
Py_ssize_t transparent_target = 0, transparent_receiver = 0;

/// Does it compute sizes from numbers that differ between calls (F.interpolate's scale_factor)? In Python
/// they are sizes of those numbers; the operator computes them where nobody sees how.
bool takes_scales(World& world, const CFunction& row, PyObject* const* args, size_t nargs) {
  if (!row.is(Trait::scales_sizes) || nargs < 3 || args[1] != Py_None) return false;
  PyObject* last = args[nargs - 1];
  return (PyList_CheckExact(last) || PyTuple_CheckExact(last)) && world.holds_followed(last);
}

/// Where a native call would run Python code (any(generator), sorted(key=f)) or hide how it comes to its
/// sizes: the function of torchbolt.stand_ins that does the same in Python, so that a region can end inside;
/// `all` is then what it is given. Null: it would not, or there is none.
PyObject* python_instead(World& world, const Native& native, PyObject* const* args, size_t nargs,
                         PyObject* kwnames, std::vector<PyObject*>& all) {
  if (!native.row) return nullptr;
  const bool function = is_builtin_function(native.callable);
  const bool descriptor = Py_IS_TYPE(native.callable, &PyMethodDescr_Type);
  if (!function && !descriptor && !PyType_Check(native.callable)) return nullptr;
  const size_t total = nargs + interp::keyword_count(kwnames);
  const size_t first = descriptor ? 1 : 0;  // it is given self
  bool runs_python =
      (native.row->is(Trait::calls) && std::any_of(args, args + total, calls_python)) ||
      (!kwnames && takes_scales(world, *native.row, args, nargs)) ||
      (native.row->is(Trait::written_out) &&
       std::any_of(args, args + total, [&](PyObject* each) { return world.holds_followed(each); }));
  for (size_t i = first; i < nargs && !runs_python; ++i)
    runs_python =
        native.row->goes_through(i - first, nargs - first) &&
        (iterates_in_python(args[i]) ||
         // What it looks into is not seen where C code takes it out of an iterator.
         (native.row->is(Trait::inside) && !PyType_Check(native.callable) && PyIter_Check(args[i])) ||
         (native.row->is(Trait::pairs) && PyIter_Check(args[i])));
  if (!runs_python) return nullptr;
  if (native.self) all.push_back(native.self);
  all.insert(all.end(), args, args + total);
  return stand_in(native.row->name);
}

/// The row of what interp::start_call hands to call_native as it is. Not of classes in Python: their objects
/// are more than the native base's.
Native plainly_native(PyObject* callable) {
  if (PyFunction_Check(callable)) return {};
  PyTypeObject* type = Py_TYPE(callable);
  const bool cls = PyType_Check(callable) && !is_python_class(reinterpret_cast<PyTypeObject*>(callable));
  const bool plain = cls || is_builtin_function(callable) || type == &PyMethodDescr_Type ||
                     type == &PyWrapperDescr_Type || type == &_PyMethodWrapper_Type;
  return plain ? find_cfunction(callable) : Native{};
}

/// Its objects run Python code when they go, whenever that is.
bool has_finalizer(PyTypeObject* cls) { return is_python_class(cls) && cls->tp_finalize; }

/// What breakpoint() calls, where that is a Python function of the user's: borrowed, or null.
PyObject* breakpoint_hook(World& world, const Native& native) {
  if (!native.row || native.row->name != "builtins.breakpoint") return nullptr;
  PyRef sys = PyRef::steal(import_module("sys"));
  if (!sys) return nullptr;
  world.pin(sys.get());
  PyObject* hook = world.dict_get(world.instance_dict(sys.get()), interned<"breakpointhook">());
  return hook && PyFunction_Check(hook) ? hook : nullptr;
}

}  // namespace

bool is_partial(PyObject* object) {
  static PyTypeObject* const type = native_type("functools", "partial");
  return Py_IS_TYPE(object, type);
}

bool calls_python(PyObject* object) {
  if (PyObject* function = interp::interpreted_function_target(object)) object = function;
  return PyFunction_Check(object) || PyMethod_Check(object) || is_partial(object);
}

void Recording::note_class(PyTypeObject* cls) {
  if (is_heap_type(Py_TYPE(cls))) world.type_attr(Py_TYPE(cls), names_of.call_);
  if (!is_heap_type(cls)) return;
  world.type_attr(cls, names_of.new_);
  world.type_attr(cls, names_of.init_);
  world.type_attr(cls, interned<"__del__">());
}

void Recording::note_callable(PyObject* callable, int depth) {
  if (depth > kDeepestPartial) return;  // one that holds itself: the call finds out
  if (PyFunction_Check(callable)) return world.note_function(callable);
  if (PyMethod_Check(callable)) {
    if (!world.find(callable)) return;
    world.field(callable, offsetof(PyMethodObject, im_func), interned<"__func__">());
    world.field(callable, offsetof(PyMethodObject, im_self), interned<"__self__">());
  } else if (PyType_Check(callable)) {
    note_class(reinterpret_cast<PyTypeObject*>(callable));
  } else if (is_partial(callable)) {
    note_callable(world.field(callable, offsetof(PartialObject, function), interned<"func">()), depth + 1);
    world.read_whole(world.field(callable, offsetof(PartialObject, args), interned<"args">()));
    world.read_whole(world.field(callable, offsetof(PartialObject, keywords), interned<"keywords">()));
  } else if (is_heap_type(Py_TYPE(callable))) {
    world.type_attr(Py_TYPE(callable), names_of.call_);
  }
}

bool& breaks_are_errors() {
  static thread_local bool yes = false;
  return yes;
}

/// Its body is the author's business: nothing of it is interpreted or guarded, only what it is given.
PyObject* Recording::call_allowed(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                  PyObject* kwnames) {
  const size_t total = nargs + interp::keyword_count(kwnames);
  for (size_t i = 0; on && i < total; ++i) world.use(args[i]), touch(frame, args[i], true);
  if (on) mark(frame);
  const NativeWatch::Pause pause;
  PyObject* result = PyObject_Vectorcall(callable, args, nargs, kwnames);
  end_if_wanted(frame);
  return result;
}

/// What a result rests on that is taken for a constant: values, which object it is, and what is in a
/// container.
void Recording::use_for_constant(PyObject* object) {
  world.use(object);
  if (guard::is_leaf(object) || guard::is_tensor(object)) return;
  if (is_understood_container(object))
    world.read_deep(object);
  else if (Known* known = world.find(object))
    known->source->assume(Check::is, object);
}

PyObject* Recording::call_for_constant(PyObject* callable, PyObject* const* args, size_t nargs,
                                       PyObject* kwnames) {
  const NativeWatch::Pause pause;
  PyObject* result = hooks_.unseen([&] { return PyObject_Vectorcall(callable, args, nargs, kwnames); });
  if (result) world.reached(result, world.tree->constant(result));
  if (result && is_module(result)) world.imported(result);  // importlib.import_module
  return result;
}

void see_through(PyTypeObject* type, Py_ssize_t target, Py_ssize_t receiver) {
  transparent_type = type;
  transparent_target = target;
  transparent_receiver = receiver;
}

bool is_transparent(PyObject* object) { return transparent_type && Py_IS_TYPE(object, transparent_type); }

/// Attributes of a Compiled are its own, then its target's.
PyObject* Recording::transparent_get(Frame& frame, PyObject* object, PyObject* name) {
  bool absent = false;
  PyObject* own = generic_get(frame, object, name, &absent);
  if (!absent) return own;
  return get_attr(frame, world.field(object, transparent_target, interned<"__wrapped__">()), name);
}

/// A call of a Compiled is one of its target, on the module that a compiled module stands for.
CallStart Recording::start_transparent(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                       PyObject* kwnames) {
  auto* receiver =
      *reinterpret_cast<PyMemberDescrObject**>(reinterpret_cast<char*>(callable) + transparent_receiver);
  PyObject* target = world.field(callable, transparent_target, interned<"__wrapped__">());
  std::vector<PyObject*> all = interp::all_given(nullptr, args, nargs, kwnames);
  if (receiver && nargs && PyObject_TypeCheck(args[0], PyDescr_TYPE(receiver)))
    if (PyObject* inner = world.field(args[0], receiver->d_member->offset, PyDescr_NAME(receiver)))
      all[0] = inner;
  return start_call(frame, target, all.data(), nargs, kwnames);
}

/// The next item of a map or filter. Neither frame nor value nor exception: it is none.
CallStart Recording::start_next_of_callback(Frame& frame, PyObject* iterator) {
  if (!calls_for_items(iterator) || is_outside(iterator)) return {};
  const bool map = Py_IS_TYPE(iterator, &PyMap_Type);
  PyObject* next = stand_in(map ? "next map" : "next filter");
  if (!next) return {};
  world.pin(next);
  world.note_function(next);
  PyObject* function =
      world.field(iterator, map ? offsetof(MapObject, function) : offsetof(FilterObject, function),
                  interned<"function">());
  if (PyObject* target = interp::interpreted_function_target(function)) function = target;
  PyObject* rest =
      world.field(iterator, map ? offsetof(MapObject, iterators) : offsetof(FilterObject, iterator),
                  interned<"iterators">());
  PyObject* args[] = {function, rest};
  CallStart start = interp::start_call(*this, frame, next, args, 2, nullptr);
  if (start.frame) start.frame->return_to = interp::ReturnTo::item_call;
  return start;
}

/// Does C code that goes through it call a function of C with the items, unseen?
static bool hides_items(PyObject* iterable) {
  if (!calls_for_items(iterable)) return false;
  PyObject* function = Py_IS_TYPE(iterable, &PyMap_Type)
                           ? reinterpret_cast<MapObject*>(iterable)->function
                           : reinterpret_cast<FilterObject*>(iterable)->function;
  return !interp::interpreted_function_target(function);
}

void Recording::use_unseen(PyObject* iterable) {
  if (hides_items(iterable)) world.use(iterable);
}

PyObject* Recording::next_seen(Frame& frame, PyObject* iterator, bool* handled) {
  if (!world.follows() || !hides_items(iterator)) return nullptr;
  const CallStart start = start_next_of_callback(frame, iterator);
  *handled = !start.failed() || PyErr_Occurred();
  return *handled ? interp::run_to_end(*this, start) : nullptr;
}

bool Recording::gather(Frame& frame, PyObject* iterable, PyRef& items) {
  if (!hides_items(iterable) || is_outside(iterable)) return true;
  items = PyRef::steal(PyList_New(0));
  while (PyRef item = PyRef::steal(items ? iter_next(frame, iterable) : nullptr))
    if (PyList_Append(items.get(), item.get()) < 0) return false;
  return items && !PyErr_Occurred();
}

CallStart Recording::call_instead(Frame& frame, PyObject* by, PyObject* self, PyObject* const* args,
                                  size_t nargs, PyObject* kwnames) {
  if (!world.find(by)) world.pin(by);
  const std::vector<PyObject*> all = interp::all_given(self, args, nargs, kwnames);
  note_callable(by);
  // A stand-in may call what it stands for.
  return interp::start_call(*this, frame, by, all.data(), nargs + (self ? 1 : 0), kwnames);
}

std::string full_name(PyObject* callable) {
  if (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  if (!PyFunction_Check(callable)) return find_cfunction(callable).row->name;
  auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  PyObject* module = PyDict_GetItemWithError(function->func_globals, interned<"__name__">());
  const char* where = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : "?";
  return std::string(where) + "." + PyUnicode_AsUTF8(function->func_name);
}

namespace {

/// What the user gave to graph_break() to say, its only argument.
std::string message_of(PyObject* const* args, size_t nargs, PyObject* kwnames) {
  if (nargs + interp::keyword_count(kwnames) != 1 || !PyUnicode_Check(args[0])) return "";
  const char* text = PyUnicode_AsUTF8(args[0]);
  return text && *text ? std::string(": ") + text : "";
}

}  // namespace

/// What is known of the callable says what a call of it comes to. Nothing: it is called as any other is.
std::optional<CallStart> Recording::start_controlled(Frame& frame, PyObject* callable,
                                                     const Controlled& found, PyObject* const* args,
                                                     size_t nargs, PyObject* kwnames) {
  switch (found.control) {
    case Control::none:
      if (PyObject* number = numpy_draw(world, callable, args, nargs, kwnames); number || PyErr_Occurred())
        return CallStart{number, nullptr};
      if (!only_draws_with_numpy(callable, args, nargs + interp::keyword_count(kwnames))) return std::nullopt;
      end_here(frame, {Why::calls, full_name(callable)});
      return CallStart{PyObject_Vectorcall(callable, args, nargs, kwnames), nullptr};
    case Control::asks_whether_compiling:
      if (asks_for_eager(frame.func()->func_globals)) return std::nullopt;
      told_compiling |= says_compiling();
      return CallStart{Py_NewRef(says_compiling() ? Py_True : Py_False), nullptr};
    case Control::asks_whether_differing:
      if (nargs != 1) return std::nullopt;
      return CallStart{Py_NewRef(world.holds_followed(args[0]) ? Py_True : Py_False), nullptr};
    case Control::ignored: return CallStart{Py_NewRef(Py_None), nullptr};
    case Control::forbidden: return set_forbidden(callable), CallStart{};
    case Control::allowed:
      return CallStart{call_allowed(frame, found.itself(callable), args, nargs, kwnames), nullptr};
    case Control::constant:
      for (size_t i = 0; i < nargs + interp::keyword_count(kwnames); ++i) use_for_constant(args[i]);
      return CallStart{on ? call_for_constant(found.itself(callable), args, nargs, kwnames)
                          : PyObject_Vectorcall(found.itself(callable), args, nargs, kwnames),
                       nullptr};
    case Control::substituted: return call_instead(frame, found.by, nullptr, args, nargs, kwnames);
    case Control::stand_in:
      return call_instead(frame, found.by, PyCFunction_GET_SELF(callable), args, nargs, kwnames);
    case Control::draws:
      if (PyObject* number = draw(world, found.itself(callable), args, nargs, kwnames);
          number || PyErr_Occurred())
        return CallStart{number, nullptr};
      return std::nullopt;
    case Control::draws_list:
      if (PyObject* list = draw_list(world, found.itself(callable), args, nargs, kwnames);
          list || PyErr_Occurred())
        return CallStart{list, nullptr};
      end_here(frame, {Why::calls, full_name(found.itself(callable))});
      return CallStart{PyObject_Vectorcall(found.itself(callable), args, nargs, kwnames), nullptr};
    case Control::engine: return start_backward(frame, found.itself(callable), args, nargs, kwnames);
    case Control::apart_alone:
      if (guard::transform_levels() > outer_levels_) return std::nullopt;
      [[fallthrough]];
    case Control::apart:
      end_here(frame, {Why::calls, full_name(found.itself(callable))});
      return CallStart{PyObject_Vectorcall(found.itself(callable), args, nargs, kwnames), nullptr};
    case Control::ends_region:
      if (ends_for_aot_autograd(frame.func()->func_globals, frame.code()->co_name))
        return CallStart{Py_NewRef(Py_None), nullptr};
      end_here(frame, {Why::graph_break, message_of(args, nargs, kwnames)});
      return std::nullopt;
    case Control::disabled: {
      auto* function = reinterpret_cast<PyFunctionObject*>(callable);
      std::string name = PyUnicode_AsUTF8(function->func_qualname);
      PyObject* reason = PyDict_GetItemWithError(function->func_dict, interned<"_torchbolt_disable">());
      const bool says_why = reason && PyUnicode_Check(reason);
      end_here(frame, {Why::disabled, name, says_why ? std::string(": ") + PyUnicode_AsUTF8(reason) : ""});
      return CallStart{PyObject_Vectorcall(callable, args, nargs, kwnames), nullptr};
    }
  }
  return std::nullopt;
}

CallStart Recording::start_call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                PyObject* kwnames) {
  if (!on && (runs_whole(frame) || shows_whole(callable)))
    return {PyObject_Vectorcall(callable, args, nargs, kwnames), nullptr};
  if (!on) return interp::start_call(*this, frame, callable, args, nargs, kwnames);
  const Native native = plainly_native(callable);
  // Tensors' own methods and operators, which most calls are of: all else that is asked of a callable is
  // asked of others.
  const bool of_tensors = native.row && native.row->plain_operator && !is_builtin_function(callable);
  if (of_tensors && !marks_natives() && is_plain_call(native, args, nargs))
    return {call_operator(frame, native, args, nargs, kwnames), nullptr};
  note_callable(callable);
  if (PyType_Check(callable) && has_finalizer(reinterpret_cast<PyTypeObject*>(callable)))
    end_here(frame, {Why::finalizer, reinterpret_cast<PyTypeObject*>(callable)->tp_name});
  if (PyObject* made = array_call(*this, frame, callable, args, nargs, kwnames); made || PyErr_Occurred())
    return {made, nullptr};
  const Controlled found = control_of(callable, native);
  if (const auto start = start_controlled(frame, callable, found, args, nargs, kwnames)) return *start;
  if (PyErr_Occurred()) return {};
  if (Py_IS_TYPE(callable,
                 &Py_GenericAliasType)) {  // list[int](...): the class itself, as long as it is a C one
    PyRef origin = PyRef::steal(PyObject_GetAttrString(callable, "__origin__"));
    if (origin && PyType_Check(origin.get()) && !is_heap_type(reinterpret_cast<PyTypeObject*>(origin.get())))
      return start_call(frame, origin.get(), args, nargs, kwnames);
    PyErr_Clear();
  }
  if (is_transparent(callable)) return start_transparent(frame, callable, args, nargs, kwnames);
  if (is_plain_call(native, args, nargs)) {
    PyObject* shown = show_later(*this, frame, callable, args, nargs, kwnames);
    if (shown || PyErr_Occurred()) return {shown, nullptr};
    return {call_operator(frame, native, args, nargs, kwnames), nullptr};
  }
  std::vector<PyObject*> all;
  if (PyObject* by = python_instead(world, native, args, nargs, kwnames, all)) {
    world.pin(by);
    world.note_function(by);
    const size_t named = interp::keyword_count(kwnames);
    return interp::start_call(*this, frame, by, all.data(), all.size() - named, kwnames);
  }
  if (PyObject* shown = show_later(*this, frame, callable, args, nargs, kwnames); shown || PyErr_Occurred())
    return {shown, nullptr};
  if (PyObject* hook = on ? breakpoint_hook(world, native) : nullptr) {
    note_callable(hook);
    return interp::start_call(*this, frame, hook, args, nargs, kwnames);
  }
  PyObject* generator = interp::generator_called(callable, args, nargs, kwnames);
  if (generator && is_outside(generator)) end_here(frame, Why::generator_advanced);
  if (PyErr_Occurred()) return {};
  const Native outer = std::exchange(calling_, native);
  const CallStart start = interp::start_call(*this, frame, callable, args, nargs, kwnames);
  calling_ = outer;
  return start;
}

}  // namespace bolt::observe

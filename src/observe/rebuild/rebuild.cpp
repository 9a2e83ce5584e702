// observe/rebuild/rebuild.cpp
// Which road an object takes, and the frames.
#include "observe/rebuild/rebuild.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "guard/iterators.h"
#include "interp/async_generator.h"
#include "interp/call.h"
#include "interp/generator.h"
#include "observe/calls/controls.h"
#include "observe/ends/frames.h"
#include "python/slots.h"

namespace bolt::observe {

namespace {

/// Made while a tuple's parts are being made: meeting it again means a cycle no recipe can close.
constexpr int kInProgress = -2;
/// As many levels as half of a usual stack of C has room for (8 MiB; a level takes up to 700 bytes), and more
/// than what CPython's own limit of recursion lets a program build by calling itself.
constexpr int kDeepest = 5000;

/// No C state beyond object's own: a dict and `__slots__` are all there is to an instance.
bool is_plain_class(PyObject* object) { return class_of_c(Py_TYPE(object)) == &PyBaseObject_Type; }

/// Objects of C whose __reduce__ says all about them: iterators, and the functions that module operator
/// makes.
bool describes_itself(PyObject* object) {
  static const char* const names[] = {
      "list_iterator", "tuple_iterator",       "range_iterator",    "enumerate",
      "zip",           "list_reverseiterator", "reversed",          "map",
      "filter",        "str_ascii_iterator",   "str_iterator",      "bytes_iterator",
      "iterator",      "callable_iterator",    "types.GenericAlias"};
  for (const char* name : names)
    if (is_instance_of_named(object, name)) return true;
  const std::string_view name = Py_TYPE(object)->tp_name;
  return name.starts_with("itertools.") || name.starts_with("operator.");
}

bool goes_through_container(PyObject* object) {
  const guard::IteratorKind* kind = guard::iterator_kind(object);
  return kind && guard::goes_through_container(*kind);
}

/// A class of C with a __reduce__ of its own: dates, decimals, iterators that are not listed above. How far
/// random numbers were drawn differs between calls.
bool tells_how_to_make(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_python_class(type) || is_instance_of_named(object, "torch._C.Generator")) return false;
  PyObject* own = _PyType_Lookup(type, PyRef::steal(PyUnicode_InternFromString("__reduce__")).get());
  return own && own != PyDict_GetItemString(type_dict(&PyBaseObject_Type), "__reduce__");
}

bool is_reference_without_callback(PyObject* object) {
  return PyWeakref_CheckRefExact(object) && !reinterpret_cast<PyWeakReference*>(object)->wr_callback;
}

bool is_generator(PyObject* object) {
  return interp::is_interpreted_generator(object) || PyGen_CheckExact(object) || PyCoro_CheckExact(object) ||
         PyAsyncGen_CheckExact(object);
}

template <PyTypeObject* kType>
bool is_exactly(PyObject* object) {
  return Py_IS_TYPE(object, kType);
}

bool is_immutable(PyObject* object) { return immutable_base(Py_TYPE(object)); }

}  // namespace

bool is_instance_of_named(PyObject* object, const char* type_name) {
  return std::string(Py_TYPE(object)->tp_name) == type_name;
}

PyTypeObject* immutable_base(PyTypeObject* type) {
  type = class_of_c(type);
  static const auto bases = std::to_array<PyTypeObject*>(
      {&PyLong_Type, &PyFloat_Type, &PyComplex_Type, &PyUnicode_Type, &PyBytes_Type});
  return std::find(bases.begin(), bases.end(), type) != bases.end() ? type : nullptr;
}

int Rebuilder::add(Make make, PyObject* object, Py_ssize_t number, std::vector<int> parts) {
  recipe.makes.push_back({make, PyRef::share(object), number, std::move(parts)});
  return static_cast<int>(recipe.makes.size()) - 1;
}

void Rebuilder::fill(FillStep step) {
  step.after = recipe.makes.size();
  recipe.fills.push_back(step);
}

int Rebuilder::fail(PyObject* object, const char* why) {
  if (failure) return -1;
  failure = Reason(Why::not_described, Py_TYPE(object)->tp_name, why);
  failed_on = object;
  return -1;
}

std::vector<int> Rebuilder::items(PyObject* sequence) {
  std::vector<int> values;
  for (Py_ssize_t i = 0; i < Py_SIZE(sequence); ++i)
    values.push_back(
        value(PyList_Check(sequence) ? PyList_GET_ITEM(sequence, i) : PyTuple_GET_ITEM(sequence, i)));
  return values;
}

int Rebuilder::value(PyObject* object) {
  if (!object) return -1;
  auto at = made_.find(object);
  if (at != made_.end()) return at->second == kInProgress ? fail(object, "contains itself") : at->second;
  if (PyLong_CheckExact(object))
    if (const World::Identity* identity = world_.identity(object)) {
      if (!identity->of) return fail(object, "from id() is kept");
      const int ask = value(PyDict_GetItemString(PyEval_GetBuiltins(), "id"));
      return add(Make::call, nullptr, 0, {ask, value(identity->of)});
    }
  if (depth_ == kDeepest) return fail(object, "is too deeply nested");
  held_.push_back(PyRef::share(object));
  made_[object] = kInProgress;
  ++depth_;
  const int made = value_of_new(object);
  --depth_;
  return made_[object] = made;
}

/// Of an object that was not met before.
int Rebuilder::value_of_new(PyObject* object) {
  // What C code was given to call us back with is a matter of this run.
  if (PyObject* function = interp::interpreted_function_target(object)) return value(function);
  if (const Known* made = world_.lengths.made_of(object)) return joined_value(object, *made);
  if (Known* known = world_.find(object); known && known->by_ends) return known_value(object, *known);
  if (PyObject* own = guard::has_parts(object) ? world_.original(object) : object; own != object)
    return value(own);
  if (const Late* late = world_.late(object)) return late_value(*late);
  if (can_be_followed(object) && world_.follows_number(object))
    return add(Make::number, nullptr, world_.step_of(object));
  if ((PyTuple_Check(object) || PySlice_Check(object)) && !world_.find(object) &&
      (world_.holds_followed(object, 8) || world_.holds_late(object)))
    return fresh_value(object);
  // A number or a text alone may be carried along unread; everything else that is a leaf becomes a constant.
  if (guard::is_leaf(object) && !can_be_followed(object)) world_.use(object);
  Known* known = world_.find(object);
  if (known) return known_value(object, *known);
  const bool is_constant = guard::is_leaf(object) || PyType_Check(object) || is_module(object);
  return is_constant ? add(Make::constant, object) : fresh_value(object);
}

int Rebuilder::known_value(PyObject* object, Known& known) {
  if (known.source->access == Access::constant) return add(Make::constant, object);
  return add(Make::source, nullptr, world_.tree->keep(known.source));
}

int Rebuilder::late_value(const Late& late) {
  std::vector<int> parts;
  for (const PyRef& part : late.parts) parts.push_back(value(part.get()));
  return add(late.make, nullptr, late.number, std::move(parts));
}

int Rebuilder::tensor_value(PyObject* object) {
  int output = hooks_.output(object);
  if (output < 0) return fail(object, "did not come from the region's operators");
  PyObject* cls = class_of(object);
  int made = add(Make::tensor, cls == guard::tensor_class() ? nullptr : cls, output);
  // A view of what was there before, and requires a gradient, requires one in every call.
  const PyRef base = PyRef::steal(guard::base_of(object));
  const bool is_of_inputs = base && guard::requires_grad(base.get()) && world_.find(base.get());
  if (guard::requires_grad(object) && guard::is_autograd_leaf(object) && !is_of_inputs)
    fill({Fill::gradient, made, -1, value(guard::tensor_grad(object)), 0});
  fill_attributes(made, object);
  return made;
}

/// What the run made, by the first row that knows it.
const Rebuilder::Kind Rebuilder::kinds[] = {
    {guard::is_tensor, &Rebuilder::tensor_value},
    {[](PyObject* o) -> bool { return PyTuple_Check(o); }, &Rebuilder::tuple_value},
    {[](PyObject* o) -> bool { return PyList_Check(o); }, &Rebuilder::list_value},
    {[](PyObject* o) -> bool { return PyDict_Check(o); }, &Rebuilder::dict_value},
    {is_set, &Rebuilder::set_value},
    {is_deque, &Rebuilder::deque_value},
    {is_reference_without_callback, &Rebuilder::reference_value},
    {is_exactly<&PySlice_Type>, &Rebuilder::slice_value},
    {is_exactly<&PyFunction_Type>, &Rebuilder::function_value},
    {is_exactly<&PyCell_Type>, &Rebuilder::cell_value},
    {is_exactly<&PyMethod_Type>, &Rebuilder::method_value},
    {[](PyObject* o) { return is_instance_of_named(o, "functools.partial"); }, &Rebuilder::partial_value},
    {[](PyObject* o) -> bool { return PyCFunction_Check(o); }, &Rebuilder::builtin_method_value},
    {goes_through_container, &Rebuilder::iterator_value},
    {describes_itself, &Rebuilder::described_value},
    {[](PyObject* o) { return is_instance_of_named(o, "types.SimpleNamespace"); },
     &Rebuilder::namespace_value},
    {is_exactly<&PyContextToken_Type>, &Rebuilder::token_value},
    {is_generator, &Rebuilder::generator_value},
    {[](PyObject* o) { return interp::awaitable_kind(o) != interp::Awaitable::none; },
     &Rebuilder::awaitable_value},
    {interp::is_yielded_item, &Rebuilder::item_value},
    {[](PyObject* o) -> bool { return PyExceptionInstance_Check(o); }, &Rebuilder::exception_value},
    {is_exactly<&PyTraceBack_Type>, &Rebuilder::traceback_value},
    {is_exactly<&_PyMethodWrapper_Type>, &Rebuilder::method_wrapper_value},
    {is_plain_class, &Rebuilder::instance_value},
    {is_immutable, &Rebuilder::immutable_value},
    {[](PyObject* o) -> bool { return PyDictViewSet_Check(o) || PyDictValues_Check(o); },
     &Rebuilder::view_value},
    {is_exactly<&PyByteArray_Type>, &Rebuilder::bytearray_value},
    {tells_how_to_make, &Rebuilder::described_value},
};

int Rebuilder::fresh_value(PyObject* object) {
  for (const Kind& kind : kinds)
    if (kind.is(object)) return (this->*kind.make)(object);
  return fail(object);
}

void Rebuilder::frames(const std::vector<const interp::Frame*>& frames) {
  innermost_ = frames.back();
  // The exception the run handles is below those of the generators on top of it (interp/run.cpp).
  const _PyErr_StackItem* item = thread_state()->exc_info;
  for (const interp::Frame* each : frames) {
    if (!each->generator) continue;
    bodies_[each->generator] = each;
    item = item->previous_item;
  }
  for (size_t i = 0; i < frames.size() && !failure; ++i) {
    frame(*frames[i]);
    if (failure && i) failed_below = frames[i - 1];
  }
  if (failure) return;
  recipe.frames.front().handled = value(item->exc_value == Py_None ? nullptr : item->exc_value);
}

void Rebuilder::frame(const interp::Frame& frame) {
  FrameRecipe made;
  made.function = value(reinterpret_cast<PyObject*>(frame.func()));
  made.generator = value(frame.generator);
  made.awaitable = value(frame.awaitable);
  made.instance = value(frame.instance);
  made.namespace_dict = value(frame.namespace_dict());
  made.kw_names = value(frame.kw_names);
  made.pc = frame.pc();
  made.stays = frame.observer == &world_;
  made.return_to = static_cast<uint8_t>(frame.return_to);
  if (!frame.generator) {
    for (PyObject* local : kept_locals_of(frame, *innermost_)) made.locals.push_back(value(local));
    for (PyObject** at = frame.stack_base(); at < frame.sp; ++at) made.stack.push_back(value(*at));
  }
  recipe.frames.push_back(std::move(made));
}

}  // namespace bolt::observe

// observe/values/arrays.cpp
#include "observe/values/arrays.h"

#include <algorithm>

#include "guard/number_lists.h"
#include "guard/numpy_numbers.h"
#include "interp/call.h"
#include "observe/calls/native_watch.h"
#include "observe/calls/numpy_calls.h"
#include "python/compat.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

/// What a module has by that name, borrowed: both live as long as the process.
PyObject* named(const char* module, const char* name) {
  const PyRef found = PyRef::steal(import_module(module));
  PyRef object = PyRef::steal(found ? PyObject_GetAttrString(found.get(), name) : nullptr);
  if (!object) PyErr_Clear();
  return object.release();
}

PyObject* stand_in_of_arrays(const char* name) { return named("torchbolt.stand_ins.arrays", name); }

bool is_numpys_class(PyObject* object) {
  return PyType_Check(object) && guard::is_numpys(reinterpret_cast<PyTypeObject*>(object));
}

bool is_dtype(PyObject* object) {
  return std::string_view(Py_TYPE(Py_TYPE(object))->tp_name) == "numpy._DTypeMeta";
}

bool is_array_or_number(PyObject* object) {
  return guard::is_array(object) || guard::is_numpy_number(object);
}

/// `function` called without being seen: what it does is no part of the region.
PyRef unseen(Recording& recording, PyObject* function, std::initializer_list<PyObject*> args) {
  if (!function || PyErr_Occurred()) return {};
  const NativeWatch::Pause ours;
  PyRef result = PyRef::steal(recording.hooks().unseen(
      [&] { return PyObject_Vectorcall(function, std::data(args), args.size(), nullptr); }));
  if (!result) PyErr_Clear();
  return result;
}

/// Is it, or is in it, an array or one of the region's numbers? This only looks: a list of numbers has any
/// length.
bool holds_memory(const World& world, PyObject* object, int depth = 3) {
  if (is_array_or_number(object)) return guard::is_array(object) || world.late(object);
  if (!depth || !(PyTuple_CheckExact(object) || PyList_CheckExact(object))) return false;
  PyObject** const items = PySequence_Fast_ITEMS(object);
  return std::any_of(items, items + Py_SIZE(object),
                     [&](PyObject* each) { return holds_memory(world, each, depth - 1); });
}

/// The arguments of an operation with tensors in the place of arrays.
class Lent {
 public:
  explicit Lent(Recording& recording) : recording_(recording), world_(recording.world) {}
  /// Null: it cannot be given.
  PyRef of(PyObject* value, int depth = 3) {
    if (is_array_or_number(value)) {
      PyRef tensor = memory_of_array(world_, value);
      if (tensor) return tensor;
      return guard::is_array(value) || world_.late(value) ? PyRef() : PyRef::share(value);
    }
    if (guard::is_tensor(value) || world_.late(value)) return {};
    if (is_numpys_class(value) || is_dtype(value)) return constant(value);
    if (PyTuple_CheckExact(value) || PyList_CheckExact(value)) return depth ? all_of(value, depth) : PyRef();
    if (guard::is_leaf(value) || PySlice_Check(value) || value == Py_Ellipsis) return PyRef::share(value);
    return {};
  }

 private:
  PyRef constant(PyObject* value) {
    static PyObject* const counterpart = stand_in_of_arrays("_counterpart");
    if (Known* known = world_.find(value)) known->source->assume(guard::Check::is, value);
    PyRef found = unseen(recording_, counterpart, {value});
    if (!found || found.get() == Py_None) return {};
    if (!world_.find(found.get())) world_.pin(found.get());
    return found;
  }
  PyRef all_of(PyObject* items, int depth) {
    if (world_.find(items)) world_.read_whole(items);
    bool changes = false;
    PyRef list = PyRef::steal(PyList_New(0));
    for (Py_ssize_t i = 0; i < Py_SIZE(items); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(items, i);
      const PyRef lent = of(item, depth - 1);
      if (!lent || PyList_Append(list.get(), lent.get()) < 0) return {};
      changes |= lent.get() != item;
    }
    if (!changes) return PyRef::share(items);
    return PyTuple_Check(items) ? PyRef::steal(PyList_AsTuple(list.get())) : std::move(list);
  }
  Recording& recording_;
  World& world_;
};

/// `function` of arrays, computed by what stands in for it. `made`: it may be given numbers alone.
PyObject* computed(Recording& recording, Frame& frame, PyObject* function, PyObject* const* args,
                   size_t nargs, PyObject* kwnames, bool made = false) {
  World& world = recording.world;
  const size_t named = interp::keyword_count(kwnames);
  if (!made &&
      std::none_of(args, args + nargs + named, [&](PyObject* each) { return holds_memory(world, each); }))
    return nullptr;
  static PyObject* const counterpart = stand_in_of_arrays("_counterpart");
  static PyObject* const plan_of = stand_in_of_arrays("_plan");
  static PyObject* const compute = stand_in_of_arrays("_compute");
  const PyRef by = unseen(recording, counterpart, {function});
  if (!by || by.get() == Py_None || !compute) return nullptr;
  Lent lent(recording);
  std::vector<PyRef> held;
  const PyRef real = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(nargs)));
  const PyRef options = PyRef::steal(PyDict_New());
  for (size_t i = 0; i < nargs + named; ++i) {
    held.push_back(lent.of(args[i]));
    if (!held.back() || !recording.on) return nullptr;
    if (i < nargs)
      PyTuple_SET_ITEM(real.get(), static_cast<Py_ssize_t>(i), Py_NewRef(args[i]));
    else
      PyDict_SetItem(options.get(), PyTuple_GET_ITEM(kwnames, static_cast<Py_ssize_t>(i - nargs)), args[i]);
  }
  const PyRef plan = unseen(recording, plan_of, {function, by.get(), real.get(), options.get()});
  if (!plan || plan.get() == Py_None) return nullptr;
  if (Known* known = world.find(function)) known->source->assume(guard::Check::is, function);
  for (PyObject* each : {by.get(), plan.get()})
    if (!world.find(each)) world.pin(each);
  std::vector<PyObject*> all = {by.get(), plan.get()};
  for (const PyRef& each : held) all.push_back(each.get());
  // A region that would have to end within ends before the instruction.
  return interp::run_to_end(recording,
                            recording.call_instead(frame, compute, nullptr, all.data(), nargs + 2, kwnames));
}

/// The number in an array without dimensions, which is what it is now: the array's memory may be written.
PyObject* number_in(Recording& recording, Frame& frame, PyObject* array) {
  World& world = recording.world;
  const Late* made = world.late(array);
  if (!made) return nullptr;
  recording.mark(frame);
  const PyRef copy = PyRef::steal(PyObject_CallMethod(made->parts[1].get(), "clone", nullptr));
  const PyRef own =
      PyRef::steal(copy ? array_of_tensor(recording, frame, made->parts[0].get(), copy.get()) : nullptr);
  const PyRef index = PyRef::steal(own ? PyTuple_New(0) : nullptr);
  PyObject* number = index ? PyObject_GetItem(own.get(), index.get()) : nullptr;
  if (!number) return nullptr;
  return world.make_late(
      number, Make::call,
      {PyRef::share(getitem_function()), PyRef::share(own.get()), PyRef::share(index.get())});
}

bool is_empty_tuple(PyObject* object) { return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0; }

}  // namespace

PyRef memory_of_array(World& world, PyObject* object) {
  if (!is_array_or_number(object)) return {};
  const Late* made = world.late(object);
  if (!made) return guard::is_array(object) ? world.lists.tensor_of_array(object) : PyRef();
  if (made->make != Make::call || made->parts.size() < 2) return {};
  if (!guard::is_array(object)) return memory_of_array(world, made->parts[1].get());
  return guard::is_tensor(made->parts[1].get()) ? PyRef::share(made->parts[1].get()) : PyRef();
}

PyObject* array_of_tensor(Recording& recording, Frame&, PyObject* numpy, PyObject* tensor) {
  World& world = recording.world;
  if (!guard::is_plain_tensor(tensor) || guard::requires_grad(tensor) || world.late(tensor)) return nullptr;
  if (!world.find(tensor) && !recording.hooks().knows(tensor)) return nullptr;
  PyRef array = unseen(recording, numpy, {tensor});
  if (!array) return nullptr;  // it raises again where the region has ended
  if (!world.find(numpy)) world.pin(numpy);
  return world.make_late(array.release(), Make::call, {PyRef::share(numpy), PyRef::share(tensor)});
}

PyObject* array_call(Recording& recording, Frame& frame, PyObject* callable, PyObject* const* args,
                     size_t nargs, PyObject* kwnames) {
  static PyObject* const numpy = named("torch._C", "TensorBase")
                                     ? PyObject_GetAttrString(named("torch._C", "TensorBase"), "numpy")
                                     : nullptr;
  if (!recording.on) return nullptr;
  if (callable == numpy && nargs == 1 && !kwnames) return array_of_tensor(recording, frame, numpy, args[0]);
  const bool method = Py_IS_TYPE(callable, &PyMethodDescr_Type) && nargs && is_array_or_number(args[0]);
  const bool converts = callable == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
                        callable == reinterpret_cast<PyObject*>(&PyLong_Type);
  if (converts && nargs == 1 && !kwnames && is_array_or_number(args[0]) && recording.world.late(args[0]))
    return computed(recording, frame, callable, args, nargs, kwnames);
  if (!method && !is_numpys_function(callable) && !makes_array_of_numbers(callable)) return nullptr;
  return computed(recording, frame, callable, args, nargs, kwnames, makes_array_of_numbers(callable));
}

PyObject* array_operation(Recording& recording, Frame& frame, PyObject* name,
                          std::initializer_list<PyObject*> operands) {
  const bool may_be = name == names_of.getitem_ || name == names_of.setitem_
                          ? guard::is_array(*operands.begin())
                          : std::any_of(operands.begin(), operands.end(), is_array_or_number);
  if (!recording.on || !may_be) return nullptr;
  static PyObject* const module = import_module("operator");
  const PyRef function = PyRef::steal(module ? PyObject_GetAttr(module, name) : nullptr);
  if (!function) return PyErr_Clear(), nullptr;
  if (function.get() == getitem_function() && is_empty_tuple(std::data(operands)[1]))
    if (PyObject* number = number_in(recording, frame, *operands.begin()); number || PyErr_Occurred())
      return number;
  return computed(recording, frame, function.get(), std::data(operands), operands.size(), nullptr);
}

PyObject* array_binary_op(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right) {
  const bool in_place = op >= interp::Binary::inplace && guard::is_array(left);
  PyObject* const name = (in_place ? names_of.inplace : names_of.binary)[op % interp::Binary::inplace];
  PyRef result = PyRef::steal(array_operation(recording, frame, name, {left, right}));
  return result && in_place ? Py_NewRef(left) : result.release();
}

PyObject* array_attribute(Recording& recording, Frame& frame, PyObject* array, PyObject* name) {
  if (!guard::is_array(array) || !PyUnicode_Check(name) || !memory_of_array(recording.world, array))
    return nullptr;
  // One object for all arrays of it, which the tensor's guards tell.
  if (PyUnicode_CompareWithASCIIString(name, "dtype") == 0) {
    PyObject* dtype = PyObject_GetAttr(array, name);
    if (dtype) recording.world.pin(dtype);
    return dtype;
  }
  static PyObject* const attributes = stand_in_of_arrays("_ATTRIBUTES");
  PyObject* function = attributes ? PyDict_GetItemWithError(attributes, name) : nullptr;
  if (!function) return nullptr;
  return computed(recording, frame, function, &array, 1, nullptr);
}

PyObject* array_method(World& world, PyObject* array, PyObject* name) {
  if (!is_array_or_number(array) || !PyUnicode_Check(name) || !memory_of_array(world, array)) return nullptr;
  PyObject* found = _PyType_Lookup(Py_TYPE(array), name);
  return found && Py_IS_TYPE(found, &PyMethodDescr_Type) ? found : nullptr;
}

}  // namespace bolt::observe

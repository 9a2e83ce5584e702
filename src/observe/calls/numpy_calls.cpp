// observe/calls/numpy_calls.cpp
#include "observe/calls/numpy_calls.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "guard/numpy_numbers.h"
#include "observe/calls/native_watch.h"
#include "observe/recording.h"
#include "observe/values/number_operations.h"

namespace bolt::observe {
namespace {

/// Is it what numpy itself calls by the name that it goes by?
bool is_named_in_numpy(PyObject* callable) {
  const PyRef name = PyRef::steal(PyObject_GetAttrString(callable, "__name__"));
  const PyRef of = PyRef::steal(PyObject_GetAttrString(callable, "__module__"));
  PyErr_Clear();
  const bool has_module = of && PyUnicode_Check(of.get());
  if (has_module && PyUnicode_Tailmatch(of.get(), PyRef::steal(PyUnicode_FromString("numpy")).get(), 0,
                                        PY_SSIZE_T_MAX, -1) != 1)
    return false;
  PyObject* module = has_module ? PyDict_GetItemWithError(PyImport_GetModuleDict(), of.get())  // borrowed
                                : PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
  // Not by asking the module, which may have code of its own for names that it does not have.
  return module && PyModule_Check(module) && name && PyUnicode_Check(name.get()) &&
         PyDict_GetItemWithError(PyModule_GetDict(module), name.get()) == callable;
}

bool is_one_of(PyObject* function, std::span<const std::string_view> names) {
  if (PyCFunction_Check(function))  // as most functions are, and each is asked
    return std::ranges::find(names, reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name) !=
           names.end();
  const PyRef name = PyRef::steal(PyObject_GetAttrString(function, "__name__"));
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!text) PyErr_Clear();
  return text && std::ranges::find(names, text) != names.end();
}

/// Does it give one number for a list of them, of any length?
bool reduces(PyObject* function) {
  static constexpr std::string_view kNames[] = {"max", "mean", "median", "min", "std", "sum", "var"};
  return is_one_of(function, kNames);
}

bool is_number_of_some_kind(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object) ||
         guard::is_numpys(Py_TYPE(object));
}

}  // namespace

bool is_numpys_function(PyObject* callable) {
  if (PyType_Check(callable)) return guard::is_numpys(reinterpret_cast<PyTypeObject*>(callable));
  const std::string_view type = Py_TYPE(callable)->tp_name;
  return (type == "numpy.ufunc" || type == "numpy._ArrayFunctionDispatcher") && is_named_in_numpy(callable);
}

bool makes_array_of_numbers(PyObject* callable) {
  static constexpr std::string_view kNames[] = {"arange",   "eye",  "full", "identity",
                                                "linspace", "ones", "zeros"};
  if (!PyCFunction_Check(callable) && !PyFunction_Check(callable) && !is_numpys_function(callable))
    return false;
  return is_one_of(callable, kNames) && is_named_in_numpy(callable);
}

bool holds_numbers_alone(PyObject* object) {
  if (object == Py_None || PyType_Check(object)) return true;
  if (!PyTuple_Check(object) && !PyList_CheckExact(object)) return is_number_of_some_kind(object);
  PyObject** const items = PySequence_Fast_ITEMS(object);
  return std::all_of(items, items + PySequence_Fast_GET_SIZE(object), is_number_of_some_kind);
}

/// A number like any that a function of `math` gives. Null without an exception: it is not one of numpy's
/// functions that is given numbers alone, or gives something else.
PyObject* Recording::numpy_call(Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                                PyObject* kwnames) {
  const size_t total = nargs + interp::keyword_count(kwnames);
  if (!is_numpys_function(callable) || !std::all_of(args, args + total, holds_numbers_alone)) return nullptr;
  if (Known* known = world.find(callable)) known->source->assume(Check::is, callable);
  if (nargs == 1 && !kwnames && world.lists.has_any_length(args[0]) && reduces(callable)) {
    const NativeWatch::Pause numpys;
    PyObject* number = world.lists.told_of_list(callable, args[0]);
    if (number || PyErr_Occurred()) return number;
  }
  std::vector<PyRef> held;
  std::vector<PyObject*> all;
  for (size_t i = 0; i < total; ++i) {
    held.push_back(world.with_followed(args[i]));
    all.push_back(held.back() ? held.back().get() : args[i]);
  }
  const NativeWatch::Pause numpys;
  if (world.follows() && !kwnames) {
    PyObject* number = nargs == 1 && is_sequence(all[0]) ? call_of_items(*this, frame, callable, all[0])
                                                         : number_call(*this, frame, callable, all);
    if (number || PyErr_Occurred()) return number;
  }
  for (PyObject* each : all) use_for_constant(each);
  if (!on) return nullptr;
  PyObject* result = PyObject_Vectorcall(callable, all.data(), nargs, kwnames);
  if (result && !guard::is_leaf(result)) Py_CLEAR(result);
  return result;
}

}  // namespace bolt::observe

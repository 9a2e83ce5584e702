// guard/number_lists.cpp
#include "guard/number_lists.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <string_view>
#include <vector>

#include "python/py_ref.h"

namespace bolt::guard {
namespace {

struct Filler {
  std::vector<int64_t> sizes;
  bool floats, met_float = false;
  void* at = nullptr;  ///< the next number's place

  bool put(PyObject* number) {
    met_float |= PyFloat_CheckExact(number);
    if (!PyLong_CheckExact(number) && !(floats && PyFloat_CheckExact(number))) return false;
    if (floats) {
      auto*& place = reinterpret_cast<double*&>(at);
      *place++ = PyFloat_CheckExact(number) ? PyFloat_AS_DOUBLE(number) : PyLong_AsDouble(number);
      return !PyErr_Occurred();
    }
    int overflow = 0;
    auto*& place = reinterpret_cast<int64_t*&>(at);
    *place++ = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow;
  }

  bool fill(PyObject* list, size_t dim) {
    if (!PyList_CheckExact(list) || PyList_GET_SIZE(list) != sizes[dim]) return false;
    const bool last = dim + 1 == sizes.size();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i)
      if (PyObject* item = PyList_GET_ITEM(list, i); last ? !put(item) : !fill(item, dim + 1)) return false;
    return true;
  }
};

}  // namespace

bool is_array(PyObject* object) { return std::string_view(Py_TYPE(object)->tp_name) == "numpy.ndarray"; }

PyObject* tensor_of_array(PyObject* array) {
  static PyObject* const from_numpy = [] {
    const PyRef torch = PyRef::steal(import_module("torch"));
    return torch ? PyObject_GetAttrString(torch.get(), "from_numpy") : nullptr;
  }();
  if (!from_numpy || !is_array(array)) return nullptr;
  const PyRef flags = PyRef::steal(PyObject_GetAttrString(array, "flags"));
  const PyRef writeable = PyRef::steal(flags ? PyObject_GetAttrString(flags.get(), "writeable") : nullptr);
  PyObject* tensor = writeable.get() == Py_True ? PyObject_CallOneArg(from_numpy, array) : nullptr;
  if (!tensor) PyErr_Clear();
  return tensor;
}

bool holds_numbers(PyObject* list, int dims) {
  if (!PyList_CheckExact(list)) return PyLong_CheckExact(list) || PyFloat_CheckExact(list);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i)
    if (dims == 0 || !holds_numbers(PyList_GET_ITEM(list, i), dims - 1)) return false;
  return true;
}

PyObject* tensor_of_list(PyObject* list, bool floats) {
  Filler filler{{}, floats};
  for (PyObject* first = list; PyList_CheckExact(first); first = PyList_GET_ITEM(first, 0)) {
    filler.sizes.push_back(PyList_GET_SIZE(first));
    if (!filler.sizes.back() || filler.sizes.size() > kMostListed) return nullptr;
  }
  if (filler.sizes.empty()) return nullptr;
  at::Tensor tensor(at::detail::empty_cpu(filler.sizes, floats ? at::kDouble : at::kLong));
  filler.at = tensor.data_ptr();
  if (!filler.fill(list, 0) || filler.met_float != floats) return PyErr_Clear(), nullptr;
  return THPVariable_Wrap(std::move(tensor));
}

}  // namespace bolt::guard

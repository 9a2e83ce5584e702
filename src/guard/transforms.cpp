// guard/transforms.cpp
#include "guard/transforms.h"

#include <Python.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <vector>

#include "guard/tensors.h"

// ATen/functorch/DynamicLayer.h includes a header that torch does not ship.
namespace at::functorch {
struct DynamicLayer;
const std::vector<DynamicLayer>& getDynamicLayerStack();
}  // namespace at::functorch

namespace bolt::guard {

size_t open_transforms() {
  // The elements' size is not known here, so the length is in bytes: begin and end are what a vector starts
  // with.
  const char* ends[2];
  std::memcpy(ends, &at::functorch::getDynamicLayerStack(), sizeof(ends));
  return static_cast<size_t>(ends[1] - ends[0]);
}

// What forward_ad keeps in Python: to ask the levels themselves takes a lock at every call.
bool dual_level_is_open() {
  static PyObject* const globals = [] {
    PyObject* module = PyImport_ImportModule("torch.autograd.forward_ad");
    if (!module) return PyErr_Clear(), static_cast<PyObject*>(nullptr);
    return PyModule_GetDict(module);
  }();
  static PyObject* const name = PyUnicode_InternFromString("_current_level");
  PyObject* level = globals && name ? PyDict_GetItemWithError(globals, name) : nullptr;
  return level && PyLong_CheckExact(level) && PyLong_AsLong(level) >= 0 && transform_levels() == 0;
}

bool is_of_transform(PyObject* tensor) {
  return tensor_impl(tensor)->key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched}));
}

}  // namespace bolt::guard

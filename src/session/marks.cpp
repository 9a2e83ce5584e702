// session/marks.cpp
#include "session/marks.h"

namespace bolt::session {
namespace {

PyRef attribute(PyObject* object, const char* name) {
  PyObject* found = PyObject_GetAttrString(object, name);
  if (!found) PyErr_Clear();
  return PyRef::steal(found);
}

}  // namespace

Marks marks_of(PyObject* tensor) {
  Marks marks;
  PyObject** dict = _PyObject_GetDictPtr(tensor);
  if (!dict || !*dict || !PyDict_GET_SIZE(*dict)) return marks;
  auto dims = [&](const char* name) {
    uint64_t bits = 0;
    PyObject* found = PyDict_GetItemString(*dict, name);
    PyRef list = PyRef::steal(found ? PySequence_List(found) : nullptr);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
      const long dim = PyLong_AsLong(PyList_GET_ITEM(list.get(), i));
      if (dim >= 0 && dim < 64) bits |= uint64_t{1} << dim;
    }
    if (PyErr_Occurred()) PyErr_Clear();
    return bits;
  };
  marks.dynamic = dims("_dynamo_dynamic_indices");
  marks.maybe = dims("_dynamo_weak_dynamic_indices");
  marks.fixed = dims("_dynamo_static_indices");
  PyObject* found = PyDict_GetItemString(*dict, "_dynamo_dynamic_range");
  PyRef list = PyRef::steal(found ? PySequence_List(found) : nullptr);
  for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* range = PyList_GET_ITEM(list.get(), i);
    auto number = [&](const char* name) -> std::optional<int64_t> {
      PyRef value = attribute(range, name);
      if (!value || !PyLong_Check(value.get())) return std::nullopt;
      int overflow = 0;
      const int64_t n = PyLong_AsLongLongAndOverflow(value.get(), &overflow);
      return overflow ? std::nullopt : std::optional(n);
    };
    if (auto dim = number("dim"); dim && *dim >= 0 && *dim < 64)
      marks.ranges.emplace_back(static_cast<int>(*dim), number("min"), number("max"));
  }
  if (PyErr_Occurred()) PyErr_Clear();
  return marks;
}

}  // namespace bolt::session

// guard/numpy_numbers.cpp
#include "guard/numpy_numbers.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace bolt::guard {

// Not where numpy has not been imported.
bool is_numpys(PyTypeObject* type) {
  static std::vector<PyTypeObject*> types;
  static bool looked = false;
  if (!looked) {
    PyObject* numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");  // borrowed
    if (!numpy) return false;
    looked = true;
    for (const char* name : {"float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64",
                             "uint32", "uint16", "uint8", "bool_"}) {
      PyObject* found = PyObject_GetAttrString(numpy, name);
      if (found && PyType_Check(found))
        types.push_back(reinterpret_cast<PyTypeObject*>(found));  // for the life of the process
      else
        PyErr_Clear();
    }
  }
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool is_numpy_number(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) return false;  // tensors are asked about all the time
  const PyNumberMethods* as_number = type->tp_as_number;
  if (!as_number || !as_number->nb_float || type == &PyBool_Type) return false;
  return is_numpys(type) && !std::string_view(type->tp_name).starts_with("numpy.bool");
}

bool is_numpy_generator(PyObject* object) {
  const std::string_view name = Py_TYPE(object)->tp_name;
  return name == "numpy.random.mtrand.RandomState" || name == "numpy.random._generator.Generator";
}

PyTypeObject* pythons_type_of(PyObject* numpy_number) {
  return PyIndex_Check(numpy_number) ? &PyLong_Type : &PyFloat_Type;
}

}  // namespace bolt::guard

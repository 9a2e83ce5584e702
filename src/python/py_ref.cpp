// python/py_ref.cpp
#include "python/py_ref.h"

#include "python/compat.h"

namespace bolt {

PyTypeObject* native_type(const char* module_name, const char* name) {
  const RaisedAside raised;  // it may be asked for anywhere, and is kept for good
  PyRef module = PyRef::steal(import_module(module_name));
  PyObject* type = module ? PyObject_GetAttrString(module.get(), name) : nullptr;
  if (!type) PyErr_Clear();
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace bolt

// session/exceptions.cpp
#include "session/exceptions.h"

#include <Python.h>

#include "python/py_ref.h"

namespace bolt::session {

void set_exception(const char* name, const std::string& text) {
  PyRef module = PyRef::steal(import_module("torchbolt.exc"));
  PyRef type = PyRef::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
  if (type) PyErr_SetString(type.get(), text.c_str());
}

}  // namespace bolt::session

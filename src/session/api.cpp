// session/api.cpp
#include "session/api.h"

#include "python/py_ref.h"

namespace bolt::session {

PyObject* in_python(const char* function, PyObject* self, PyObject* argument) {
  PyRef api = PyRef::steal(import_module("torchbolt.api"));
  PyRef called = PyRef::steal(api ? PyObject_GetAttrString(api.get(), function) : nullptr);
  return called ? PyObject_CallFunctionObjArgs(called.get(), self, argument, nullptr) : nullptr;
}

}  // namespace bolt::session

// module.cpp
// The Python module torchbolt._C.
//
// Each stage that Python can reach adds its functions here; nothing else happens in this file.

#include "autograd/module.h"
#include "device/module.h"
#include "interp/module.h"
#include "lower/module.h"
#include "observe/module.h"
#include "session/callable.h"

namespace {

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    "torchbolt._C",
    "Torchbolt's compiler.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__C() {
  PyObject* module = PyModule_Create(&module_definition);
  if (module && bolt::interp::add_interp_functions(module) < 0) Py_CLEAR(module);
  if (module && bolt::observe::add_observe_functions(module) < 0) Py_CLEAR(module);
  if (module && bolt::autograd::add_joint_functions(module) < 0) Py_CLEAR(module);
  if (module && bolt::lower::add_lower_functions(module) < 0) Py_CLEAR(module);
  if (module && bolt::device::add_device_functions(module) < 0) Py_CLEAR(module);
  if (module && bolt::session::add_callable(module) < 0) Py_CLEAR(module);
  return module;
}

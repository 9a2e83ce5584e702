// tests/interp/standalone_module.cpp
// The module _interp: the interpreter alone, without torch, for any Python that has headers.

#include "interp/module.h"

namespace {

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_interp",
    "Torchbolt's interpreter, alone.",
    -1,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__interp() {
  PyObject* module = PyModule_Create(&definition);
  if (module && bolt::interp::add_interp_functions(module) < 0) Py_CLEAR(module);
  return module;
}

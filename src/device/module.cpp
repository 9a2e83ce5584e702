// device/module.cpp
#include "device/module.h"

#include "device/device.h"
#include "device/no_memory.h"

namespace bolt::device {
namespace {

PyObject* processor(PyObject*, PyObject*) {
  try {
    return PyUnicode_FromString(find(graph::DeviceKind::CPU)->fingerprint(c10::kCPU).c_str());
  } catch (const std::exception& error) {  // TORCHBOLT_ISA names what the machine does not have
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

PyMethodDef methods[] = {
    {"_processor", processor, METH_NOARGS, "_processor(): what code for the processor is emitted for."},
    {"_fail_allocation", fail_allocation, METH_O, "See src/device/no_memory.h."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

int add_device_functions(PyObject* module) { return PyModule_AddFunctions(module, methods); }

}  // namespace bolt::device

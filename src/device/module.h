// device/module.h
// What Python asks of devices.
//
//   _processor()          what code for the processor is emitted for, as TORCHBOLT_ISA leaves it
//   _fail_allocation(n)   see no_memory.h
#pragma once

#include <Python.h>

namespace bolt::device {

/// Adds it to `module`; -1 with an exception set.
int add_device_functions(PyObject* module);

}  // namespace bolt::device

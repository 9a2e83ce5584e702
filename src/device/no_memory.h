// device/no_memory.h
// For tests: the processor's memory runs out at a place of their choice.
//
//   _fail_allocation(n)   from the n-th allocation of a tensor's memory on all raise; -1: none does. Returns
//                         how many there were since the last call.
#pragma once

#include <Python.h>

namespace bolt::device {

PyObject* fail_allocation(PyObject*, PyObject* number);

}  // namespace bolt::device

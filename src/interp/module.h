// interp/module.h
// The interpreter's Python functions, for torchbolt._C and for the torch-free test module _interp.
#pragma once

#include "python/compat.h"

namespace bolt::interp {

/// Readies the interpreter and adds `_interp_run` and `_interp_wrap` to `module`. -1 with an exception set.
int add_interp_functions(PyObject* module);

}  // namespace bolt::interp

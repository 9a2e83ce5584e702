// interp/native_op.h
// An opcode whose implementation CPython does not export -> a tiny function that consists of it, run by
// CPython.
//
// Some opcodes (exception groups, 3.12's type parameters, the wrapper of an async generator's values) are
// implemented by functions that extensions cannot link to. For these we build a code object `LOAD_FAST 0 ...;
// <opcode>; RETURN_VALUE` once and call it with the operands. The helper's own frame is removed from
// tracebacks.
#pragma once

#include <initializer_list>

#include "python/compat.h"

namespace bolt::interp {

/// Runs `opcode arg` on `operands` (borrowed). `results` 2: the two pushed values come back as a tuple.
PyObject* run_native_op(int opcode, int arg, std::initializer_list<PyObject*> operands, int results = 1);

/// Calls `function`, a Python function without arguments that CPython runs, and drops its entry from the
/// traceback of an exception.
PyObject* call_hidden(PyObject* function, PyObject* const* args, size_t nargs);

}  // namespace bolt::interp

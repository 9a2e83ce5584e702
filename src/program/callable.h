// program/callable.h
// The Python object torchbolt.compile makes: `Compiled`. Called, it finds the entry whose guards hold and
// runs it, or runs the target for real, recording, and adds an entry.
//
// It is a vectorcall object and a method descriptor: put into a class as `__call__` or a method it is given
// `self` as CPython gives it to functions, without a bound-method object in between.
//
// Entries are tried in the order of their last hit. All of this happens under the GIL; an entry in use is
// kept alive by its own reference, so that threads, recursion and reset() in the middle of a call are
// harmless.
#pragma once

#include <Python.h>

namespace bolt::program {

/// Adds Compiled and the functions around it (stats, reset, wait) to the module. -1 with an exception.
int add_callable(PyObject* module);

}  // namespace bolt::program

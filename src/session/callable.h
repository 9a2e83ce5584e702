// session/callable.h
// The Python object torchbolt.compile makes: `Callable`. What a call of it does is in call.h.
//
// It is a vectorcall object and a method descriptor: put into a class as `__call__` or a method it is given
// `self` as CPython gives it to functions, without a bound-method object in between.
#pragma once

#include <Python.h>

namespace bolt::session {

/// Adds Callable and the functions around it (stats, reset, wait) to the module. -1 with an exception.
int add_callable(PyObject* module);

}  // namespace bolt::session

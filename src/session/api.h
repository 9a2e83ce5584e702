// session/api.h
// Functions of torchbolt/api.py, where the options are, called from C++.
#pragma once

#include <Python.h>

namespace bolt::session {

/// torchbolt.api.<function>(self[, argument]). New, null with an exception.
PyObject* in_python(const char* function, PyObject* self, PyObject* argument = nullptr);

}  // namespace bolt::session

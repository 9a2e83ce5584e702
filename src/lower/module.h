// lower/module.h
// Python functions for trying the stages by hand and for the tests of the tape's text:
//
//   _opt(text, arguments) -> (text, report): what bolt-opt does (opt/opt.h), from a tape on; `arguments`
//   is a list of strings _record_tape(callable, args, parameters) -> text: the tape of callable(*args), a
//   list of those of its inputs that are parameters given, without anything of Python's being followed
#pragma once

#include <Python.h>

namespace bolt::lower {

/// Adds them to `module`; -1 with an exception set.
int add_lower_functions(PyObject* module);

}  // namespace bolt::lower

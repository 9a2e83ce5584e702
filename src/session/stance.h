// session/stance.h
// set_stance, torchbolt's and torch's -> what calls do.
#pragma once

#include <Python.h>

#include <cstdint>

namespace bolt::session {

/// What calls do where no entry fits, or at all; the numbers in torchbolt/controls.py.
enum class Stance : uint8_t {
  standard,
  force_eager,
  eager_on_recompile,
  fail_on_recompile,
  eager_then_compile,  ///< the first call of each callable is eager's
  force_backend,       ///< each callable's twin is called, made for another backend
};
/// This thread's, or else the process's, or else what torch.compiler.set_stance says.
Stance stance();

/// Python's _set_stance(number): the process's from now on; gives the one before. _set_thread_stance(number):
/// this thread's, which goes first unless it is standard.
PyObject* set_stance(PyObject*, PyObject* value);
PyObject* set_thread_stance(PyObject*, PyObject* value);

}  // namespace bolt::session

// session/backend.h
// A recorded region -> an FX graph -> what a user's backend makes of it.
#pragma once

#include <Python.h>

#include <memory>
#include <string>
#include <vector>

#include "compile.h"

namespace bolt::session {

/// A Python exception is set, and is the caller's result.
struct PythonError {};

/// What a backend is told about an input of the tape.
struct BackendInput {
  at::Tensor tensor;  ///< as it is after the recorded run; undefined: the tape does not use it
  std::string name;   ///< where it came from: self.fc.weight
  int argument;       ///< which one of the call it is, or is found in; kNoArgument: found elsewhere
  static constexpr int kNoArgument = 1 << 30;
};

/// Calls `backend(graph, example_inputs)` once and runs what it gives. `backend` is what
/// torchbolt/backends.py registered. Sizes are computed in the graph, from those of its inputs; numbers that
/// differ between calls are inputs too, behind the tensors. Needs the GIL; throws PythonError.
std::shared_ptr<run::Runnable> compile_with_backend(PyObject* backend, run::Recorded& recorded,
                                                    const std::vector<BackendInput>& inputs,
                                                    const SymbolTable& symbols);

}  // namespace bolt::session

// guard/assumption.h
// What a guard says of one object: whether it holds, and its words.
#pragma once

#include <string>
#include <vector>

#include "guard/source.h"
#include "guard/tensors.h"

namespace bolt::guard {

/// Asks `object` a question that C code answers, and that no word in memory answers for it. `how`: a C
/// descriptor, or a tuple of arguments to call it with. New; null with an exception.
PyObject* ask(PyObject* object, PyObject* how);

/// Does it hold of `object`? Aliases and tensors are compared after the walk.
bool holds(const Assumption& assumption, PyObject* object);

/// "self.training == True"
std::string guard_text(const Source& source, const Assumption& assumption,
                       const std::vector<std::string>& names, const TensorTable& tensors);

/// " (now False)": what is found instead; null: nothing.
std::string now(const Assumption& assumption, PyObject* object);

}  // namespace bolt::guard

// guard/assumption.h
// What a guard says of one object: whether it holds, and its words.
#pragma once

#include <string>
#include <vector>

#include "guard/source.h"
#include "guard/tensors.h"

namespace bolt::guard {

/// Does it hold of `object`? Aliases and tensors are compared after the walk.
bool holds(const Assumption& assumption, PyObject* object);

/// "self.training == True"
std::string guard_text(const Source& source, const Assumption& assumption,
                       const std::vector<std::string>& names, const TensorTable& tensors);

/// " (now False)": what is found instead; null: nothing.
std::string now(const Assumption& assumption, PyObject* object);

}  // namespace bolt::guard

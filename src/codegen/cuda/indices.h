// codegen/cuda/indices.h
// Sizes and index arithmetic as C++ text, and the indices of dimensions from a position in their space.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loops/kernel.h"

namespace bolt::codegen::cuda {

/// A symbol's name -> the variable that holds it.
using NameOf = std::function<std::string(const std::string&)>;
std::string index_text(Sym s, const NameOf& name);

/// A name that C++ accepts.
std::string identifier(const std::string& name);

/// Does `text` use this variable?
bool uses(const std::string& text, const std::string& variable);

/// The index of dims[which] at `position` of the space of `dims`, the last running fastest.
std::string index_at(const loops::Kernel& k, const std::vector<int>& dims, size_t which,
                     const std::string& position, const NameOf& name);

}  // namespace bolt::codegen::cuda

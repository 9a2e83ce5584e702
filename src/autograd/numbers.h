// autograd/numbers.h
// Two joint tapes that are one but for numbers -> the numbers: sizes of tensors and arguments of operators,
// in one order that is the same for every tape of that form.
#pragma once

#include <optional>
#include <vector>

#include "autograd/joint.h"

namespace bolt::autograd {

/// Where a number stands in the tape that others are compared with.
struct NumberPlace {
  record::TensorId tensor = -1;  ///< a size of it; or
  record::Arg* arg = nullptr;    ///< an argument, or an element of one
  size_t index = 0;              ///< the dimension, or the element
  bool is_float = false;         ///< the number is the bits of a double
};

/// Of `other`. Nothing: it differs from `joint` in more than numbers, such as an operator, which tensor one
/// is given, or what shares memory. `places`: null, or gets where they stand in `joint`.
std::optional<std::vector<int64_t>> numbers_of(const Joint& other, const Joint& joint,
                                               std::vector<NumberPlace>* places = nullptr);

}  // namespace bolt::autograd

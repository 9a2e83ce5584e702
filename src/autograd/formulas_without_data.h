// autograd/formulas_without_data.h
// Operators on fakes whose own C++ selects by masks, so that sizes are data -> the same as choices between
// tensors, whose sizes are known.
#pragma once

#include <ATen/core/ivalue.h>

#include "record/tape.h"

namespace bolt::autograd {

/// False: it is none of those. Otherwise the stack holds what the operator gives.
bool call_without_data(const record::Entry& entry, torch::jit::Stack& stack);

}  // namespace bolt::autograd

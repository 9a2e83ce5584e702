// autograd/circular_pads.h
// Circular pads on fakes -> what goes round, joined to both sides.
//
// ATen copies parts into an empty result, and the gradient of each copy is taken out of that result by
// strides, which are numbers. Of parts that are joined it is a slice, of any size.
#pragma once

#include <ATen/core/ivalue.h>

#include "record/tape.h"

namespace bolt::autograd {

/// False: it is none of those, or nobody differentiates it. Otherwise the stack holds what the operator
/// gives.
bool call_circular_pad(const record::Entry& entry, torch::jit::Stack& stack);

}  // namespace bolt::autograd

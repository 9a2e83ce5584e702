// autograd/attention_of_four.h
// Attention of more or fewer than four dimensions on fakes -> the same of four, and a view of it.
//
// ATen's fused kernels, and the formulas of their gradients, are of [batches, heads, positions, width], with
// the elements of a row beside each other: those of an image's pixels, [batches, width, positions], are
// copied. Anything else its C++ writes out as products and a softmax that is kept for the backward pass, also
// where fakes are replayed. So it is brought to four dimensions before, as graph/passes/attention_batches.cpp
// does where nobody differentiates. The processor's kernels of ours need none of it, and an attention that
// drops some of its weights draws its numbers as eager does.
#pragma once

#include <ATen/core/ivalue.h>

#include "record/tape.h"

namespace bolt::autograd {

/// False: it is none of those. Otherwise the stack holds what the operator gives.
bool call_attention_of_four(const record::Entry& entry, torch::jit::Stack& stack);

}  // namespace bolt::autograd

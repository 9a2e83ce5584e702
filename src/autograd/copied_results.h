// autograd/copied_results.h
// A joint tape whose results in half types are made wider for other results -> the same, of copies of them
//
//   %loss = f(cast(%logits))   ->   %c = clone(%logits), %loss = f(cast(%c))
//
// The logits of a language model are handed out beside the loss that is made of them in float32. The caller
// may write to a result, so it cannot be kept for the backward pass, and what is made of it there would have
// to be kept instead, twice as large: eager keeps the log softmax. A copy of the result can be kept, and all
// else comes again from it. A copy that nobody keeps is never made: without a memory of its own it is the
// result itself.
#pragma once

#include "autograd/joint.h"

namespace bolt::autograd {

void copy_results(Joint& joint);

}  // namespace bolt::autograd

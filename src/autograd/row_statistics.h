// autograd/row_statistics.h
// A joint tape whose backward part reads a log softmax of long rows -> the same, with their statistics
//
//   %p = _log_softmax(%x, 1)   ->   %top, %log = log_softmax_statistics(%x, 1)
//                                   %p = log_softmax_with(%x, %top, %log)
//
// The gradient of a loss over a large vocabulary is made of the log softmax, which is too large to keep.
// Computed again, each row is gone through for its maximum and for its sum before anything can be made of its
// elements. With two numbers a row that are kept instead it follows element by element, and whatever the
// logits went through before (a soft cap) comes again once and not three times.
#pragma once

#include "autograd/joint.h"

namespace bolt::autograd {

/// Whose results the caller is given, he has kept himself.
void keep_row_statistics(Joint& joint);

}  // namespace bolt::autograd

// lower/attention_masks.h
// A tape -> the same tape, in which attention whose mask hides nothing, or just what lies ahead, has no mask.
//
// Where gradients are needed, ATen itself takes attention apart (autograd/), and its kernels for masks need
// several times the time and the memory of those for none. So the masks are told before: they are lowered
// alone, and what is known of them is graph/passes/fold_masks.cpp's.
//
// Without a mask another kernel runs, whose result may lie otherwise. A copy brings it into the recorded
// order; the graph knows no order and drops it. Where that is not all that differs, the caller finds out when
// he replays the tape, and takes the one with masks.
#pragma once

#include <optional>

#include "lower/sizes.h"
#include "record/tape.h"

namespace bolt::lower {

/// Nothing: there is no such mask. `sizes`: of the tape.
std::optional<record::Tape> without_masks(const record::Tape& tape, Sizes& sizes);

}  // namespace bolt::lower

// record/backward.h
// What a backward pass that begins inside a recording would do -> whether it can be part of the region, and
// what it gives gradients to.
//
// It can where it calls nothing but ATen's nodes, made by operators of this recording: then later calls know
// from the tape alone what it computes. Hooks run the user's Python in the middle, a node made before came
// from another region, and anomaly mode looks at every gradient: with any of these the region ends before the
// backward pass, which is the engine's.
//
// The recorder sees the pass as one operator (autograd/gradients.h), so it does not matter on which thread
// the engine runs nodes: those of an accelerator have one of the device's. What is asked of them is that
// their stream is the one that the program will run on, which is the current one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "record/tape.h"

namespace bolt::record {

/// What a pass from `outputs` gives gradients to: `asked`, all of which it comes to, or, where that is empty,
/// the leaves that it comes to, in the order in which they are found. Nothing: it must not be part of the
/// region. `inputs`: what came from outside so far. `first_number`: autograd's number of the first node that
/// the recording can have made.
std::optional<std::vector<at::Tensor>> places_behind(const std::vector<at::Tensor>& outputs,
                                                     const std::vector<at::Tensor>& asked,
                                                     const std::vector<at::Tensor>& inputs,
                                                     uint64_t first_number);

/// Is a pass over what was recorded better left to the engine? Where autograd follows an operator that was
/// given a number which differs between calls, and not as an operand, the region could only be replayed, and
/// the update with it; what lies in a checkpoint is to be computed again; and some operators are eager's
/// (left_to_eager.h).
bool is_better_apart(const Tape& tape);

/// Does anybody want to be told when the leaf is given a gradient?
bool has_hooks(const at::Tensor& leaf);

}  // namespace bolt::record

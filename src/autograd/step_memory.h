// autograd/step_memory.h
// The tape of a whole step -> the same step in less memory: of what a backward pass reads of the work before
// it, partition.h decides what is kept and what is computed again, as for the parts of a joint tape.
//
//   %h = linear(%x, %w)               %h = linear(%x, %w)
//   %a = gelu(%h)                     %a = gelu(%h)
//   %y = linear(%a, %v)         =>    %y = linear(%a, %v)
//   ...                               ...
//   %gv = mm(%gy, %a)                 %k = torchbolt::keep(%h);  %b = gelu(%k);  %gv = mm(%gy, %b)
//
// It stays one tape, and so one program that happens or does not. But the two sides of a pass have formulas
// in common, and as one graph they would share what those come to: a normalised image in float32 would wait
// for the backward pass beside the bfloat16 that it is made of. So what is kept goes through torchbolt::keep,
// and nothing is found equal, or merged, across it.
//
// What comes behind the last product of the forward pass, the loss as a rule, is used at once. It counts as
// part of the backward pass, and shares with it whatever is equal.
#pragma once

#include <cstddef>
#include <vector>

#include "autograd/partition.h"
#include "record/tape.h"

namespace bolt::autograd {

/// A backward pass on the tape of a step.
struct BackwardPass {
  size_t begin = 0, end = 0;                        ///< its entries
  std::vector<record::TensorId> leaves, gradients;  ///< of each leaf; -1: it has none
  size_t border = 0;                                ///< behind it: where the work for the next pass begins

  void move(std::ptrdiff_t by) {
    begin += static_cast<size_t>(by);
    end += static_cast<size_t>(by);
  }
};

/// What a pass keeps, here and in eager.
struct PassMemory {
  MemoryUse here, eager;
};

/// `passes` in their order; `wanted` are the step's results. Throws Unsupported where a policy of a
/// selective checkpoint raises.
std::vector<PassMemory> spare_memory(record::Tape& tape, std::vector<record::TensorId>& wanted,
                                     std::vector<BackwardPass> passes, const Budget& budget);

}  // namespace bolt::autograd

// autograd/step.h
// The tape of a run with backward passes in it (torchbolt::gradients) -> one tape of all of it, of which
// nothing is differentiated any more: a training step as one program.
//
// What autograd follows is replayed on fakes, as for a joint tape, and a backward pass is a walk over the
// nodes that this left. Everything else (the optimizer's update, clipping, sums of gradients) is copied from
// the run's tape as it is, numbers that differ between calls included. So gradients are tensors like any
// other, which die into the update where nobody sees them afterwards.
//
// What of the forward part is kept for a backward pass is decided as for a joint tape (step_memory.h).
//
// A result that a backward pass has begun from, or gone through, still says that it has a history, of which
// nothing is left. One with another history cannot be given: the run's tape is replayed then.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "autograd/step_memory.h"
#include "record/tape.h"

namespace bolt::autograd {

struct StepTape {
  record::Tape tape;                     ///< inputs: those of the run
  std::vector<record::TensorId> wanted;  ///< in the order of the run's
  std::vector<bool> used_up;             ///< by wanted: its history is used up
  std::vector<bool> leaves_made;         ///< by wanted: a leaf that the run made (requires_grad_())
  std::vector<size_t> leaves;            ///< of the inputs: those that gradients came to
  std::vector<PassMemory> memory;        ///< by backward pass
};

/// Throws Unsupported, with the reason, for what cannot be said so; NotFollowed, where that is a
/// single operator's. `own`: inputs, by their index, that are none of the caller's.
StepTape make_step(const record::Tape& run, const std::vector<record::TensorId>& wanted,
                   const Budget& budget = {}, const std::set<int>& own = {});

/// As text: its tape (record/text.h), and what each backward pass keeps.
std::string print(const StepTape& step);

}  // namespace bolt::autograd

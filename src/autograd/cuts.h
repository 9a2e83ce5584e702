// autograd/cuts.h
// A run that hands out several results, one made of another -> what has to be done so that there is a node of
// autograd's between the two.
//
// `return loss, logits`: were both of one node, a hook on logits would see what comes from outside alone, and
// autograd.grad(loss, logits) would find no way. Nearly always the two can be of one program, which knows
// logits for an inner result (joint.h) and has ways for passes that somebody looks at in between. Where that
// cannot be, the tape is cut behind what makes logits and before what goes on to the loss. Entries stay in
// their order, so writes and random numbers do. What is left to eager (record/left_to_eager.h) is cut out
// besides (pieces.h).
//
// Where the run has backward passes in it (gradients.h), it is one piece up to the last of them, a whole step
// (step.h). What is made behind it, and the caller may ask for gradients of, is cut from it.
#pragma once

#include <set>
#include <vector>

#include "record/tape.h"

namespace bolt::autograd {

struct Cuts {
  /// Ascending: the entries that pieces begin with, behind the first one. None, as nearly always: no result
  /// is made of another, but by showing it, and none is made behind a backward pass.
  std::vector<size_t> places;
  std::set<record::TensorId> inner;  ///< results that others are made of, and no cut is there for
};

/// `own`: inputs, by their index, that are none of the caller's. What is written to others, so that they have
/// a history afterwards, is a result.
Cuts cuts(const record::Tape& run, const std::vector<record::TensorId>& wanted, const std::set<int>& own);
/// Where results that can be inner ones are.
Cuts fewest_cuts(const record::Tape& run, const std::vector<record::TensorId>& wanted,
                 const std::set<int>& own);

}  // namespace bolt::autograd

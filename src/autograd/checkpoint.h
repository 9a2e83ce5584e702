// autograd/checkpoint.h
// torch.utils.checkpoint on a tape: two operators stand around the entries of the function, and what it
// computes is computed again for the backward pass instead of kept. (Nobody else has to know of them: they do
// nothing, and the parts of a split tape are without them.)
//
//   torchbolt::begin_checkpoint(int policy=-1) -> ()        torchbolt::end_checkpoint() -> ()
//
// A selective checkpoint has a policy of the user's: a Python callable, kept as function.h keeps backward
// passes. It is asked once for each operator below autograd, in their order, and what it says to save is kept
// and not computed again. It is asked when the program is made, not in each call: its answers decide about
// memory alone.
#pragma once

#include "record/tape.h"

namespace bolt::autograd {

/// torchbolt::begin_checkpoint: +1, torchbolt::end_checkpoint: -1, any other: 0.
int checkpoint_mark(const record::Entry& entry);

/// Of a begin_checkpoint; -1: it has none.
int64_t policy_of(const record::Entry& begin);

/// Does the policy say that what the entry gives is to be saved? Throws Unsupported if it raises.
bool is_to_be_saved(int64_t policy, const record::Entry& entry, const record::Tape& tape);

}  // namespace bolt::autograd

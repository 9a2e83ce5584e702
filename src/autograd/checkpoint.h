// autograd/checkpoint.h
// torch.utils.checkpoint on a tape: two operators without arguments or results stand around the entries of
// the function, and what it computes is computed again for the backward pass instead of kept. (Nobody else
// has to know of them: they do nothing, and the parts of a split tape are without them.)
#pragma once

#include "record/tape.h"

namespace bolt::autograd {

/// torchbolt::begin_checkpoint: +1, torchbolt::end_checkpoint: -1, any other: 0.
int checkpoint_mark(const record::Entry& entry);

}  // namespace bolt::autograd

// autograd/early_cuts.h
// A run whose gradients somebody waits for -> where its tape is cut besides, so that they come one after
// another while the backward pass runs, and not all at its end.
//
// Hooks on a parameter, those that wait until its gradient is accumulated, and those of what distributes
// gradients over machines, work beside the rest of the backward pass: they send, or step and let go. Each
// piece of a cut run has a node of autograd's, and the engine accumulates what one gives before it calls the
// next. So nothing else is needed for that than pieces, and a tape without hooks stays whole: a cut costs
// what could have been fused across it.
#pragma once

#include <vector>

#include "record/tape.h"

namespace bolt::autograd {

/// Ascending, as those of cuts(). `awaited`: by input of the run. The parameters behind each cut have about
/// the same size, and it lies where the least crosses it.
std::vector<size_t> early_cuts(const record::Tape& run, const std::vector<bool>& awaited);

/// Does anybody wait for the gradient of the leaf?
bool is_awaited(const at::Tensor& leaf);

}  // namespace bolt::autograd

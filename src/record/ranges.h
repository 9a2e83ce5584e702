// record/ranges.h
// A comparison with random numbers -> its outcome, where that is the same whatever is drawn.
//
//   if torch.rand([]) < self.layerdrop: continue      # layerdrop is 0: never
#pragma once

#include <optional>

#include "record/tape.h"

namespace bolt::record {

/// The outcome of what made this tensor, which nothing has written to; nothing: it depends on the draw.
std::optional<bool> known_outcome(const Tape& tape, TensorId condition);

}  // namespace bolt::record

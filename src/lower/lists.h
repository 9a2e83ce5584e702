// lower/lists.h
// Operators over lists of tensors -> the same for each tensor: `_foreach_add_.List(a, b, alpha)` is
// `add_.Tensor(a[i], b[i], alpha)` for every i.
//
// Optimizers are written in them. As one call of ATen each would need copies of all it writes, and no kernel
// would go through a parameter once. Which operator stands for which is found through the dispatcher: it has
// the name that is left, and a schema that takes what the call gives, one of each list. Promotion and the
// rules for numbers are then that operator's. An operator whose single form has no row here stays a call.
//
// What runs a tape as it was recorded still has the lists: this is for lowering alone.
#pragma once

#include <optional>

#include "record/tape.h"

namespace bolt::lower {

/// Nothing: `tape` has none. What stays as it was lies where `tape` has it.
std::optional<record::Tape> without_lists(const record::Tape& tape);

}  // namespace bolt::lower

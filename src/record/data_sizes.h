// record/data_sizes.h
// Operators whose result is as large as their data say (nonzero, masks, item() that becomes a size) ->
// entries that a region can go on behind, with the sizes they found as symbols. Together with
// data_sizes.cpp, which also has what the Recorder does about them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "record/operator_facts.h"

namespace bolt::record {

/// x[mask], which gives as many elements as the mask has ones?
bool selects_by_mask(const OperatorFacts& facts, const torch::jit::Stack& stack);

/// x[mask], masked_select(x, mask), where(mask) and argwhere(mask) are made of the places where the mask is
/// not 0, as in ATen: those are recorded. True: all of it has been; false: `op` itself comes yet.
bool select_by_places(const c10::OperatorHandle& op, const OperatorFacts& facts, torch::jit::Stack* stack);

}  // namespace bolt::record

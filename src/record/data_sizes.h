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
/// not 0, and x.repeat_interleave(repeats) of the place of each row, as in ATen: those are recorded.
/// bincount() whose `minlength` is as large as what it counts gives as many numbers as that says, which is
/// expected of later calls, too. True: all of it has been; false: `op` itself comes yet.
/// `constant`: the masks hold the same in each call, and so do the places.
bool find_by_others(const c10::OperatorHandle& op, const OperatorFacts& facts, bool constant,
                    torch::jit::Stack* stack);

/// Of nothing, bincount() gives integers whatever the weights are, so data decide what it gives.
bool types_rest_on_data(const c10::OperatorHandle& op, const OperatorFacts& facts,
                        const torch::jit::Stack& stack);

}  // namespace bolt::record

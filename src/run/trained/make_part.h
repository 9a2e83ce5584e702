// run/trained/make_part.h
// A direction of a region that gradients are needed of, as a tape -> its program.
//
// Sizes that differ between calls are an argument: whoever asks says what is known of them, and is told there
// what the program takes for granted besides.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "lower/functionalize.h"
#include "run/compiled.h"
#include "run/make_compiled.h"
#include "run/wishes.h"
#include "support/stages.h"

namespace bolt::run {

/// Is shown what was lowered; says which of its results nobody sees.
using LookAtLowered = std::function<KeptOutputs(const lower::Lowered&)>;

/// As often as a stage asks for a number that can be given. Its code may still be being compiled
/// (Compiled::finish_code). Throws SizeDemand where a number must be known that cannot be.
std::shared_ptr<Compiled> make_part(const record::Tape& tape, const std::vector<record::TensorId>& wanted,
                                    const std::unordered_map<int, at::Tensor>& constants, lower::Sizes& sizes,
                                    const Wishes& wishes, Stages& stages, const LookAtLowered& look);

}  // namespace bolt::run

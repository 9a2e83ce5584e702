// run/make_chain.h
// A recorded run that gradients are needed of, and where its tape is cut -> a program for each direction of
// each piece: Chain.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/cuts.h"
#include "lower/settle.h"
#include "run/chain.h"
#include "run/wishes.h"
#include "support/stages.h"
#include "support/trace.h"

namespace bolt::run {

/// `eagers`: autograd/pieces.h. The others: make_trained.h, which this calls for each piece. Throws
/// Error(Unsupported) where it cannot be cut there.
std::shared_ptr<Chain> make_chain(const record::Tape& tape, const std::vector<record::TensorId>& wanted,
                                  const autograd::Cuts& cuts, const std::vector<size_t>& eagers,
                                  const std::unordered_map<int, at::Tensor>& constants,
                                  const std::vector<bool>& is_param, const Wishes& wishes,
                                  lower::OverInputs& over_inputs, lower::Sizes& sizes,
                                  const std::string& name, const Trace& trace, Stages& stages);

}  // namespace bolt::run

// run/trained/make_chain.h
// A recorded run that gradients are needed of, and where its tape is cut -> a program for each direction of
// each piece: Chain.
#pragma once

#include <memory>
#include <vector>

#include "autograd/cuts.h"
#include "run/trained/chain.h"
#include "run/trained/make_trained.h"

namespace bolt::run {

/// `eagers`: autograd/pieces.h. The others: make_trained.h, which this calls for each piece. Throws
/// Unsupported where it cannot be cut there.
std::shared_ptr<Chain> make_chain(const RunToTrain& run, const autograd::Cuts& cuts,
                                  const std::vector<size_t>& eagers, lower::OverInputs& over_inputs,
                                  lower::Sizes& sizes, Stages& stages);

}  // namespace bolt::run

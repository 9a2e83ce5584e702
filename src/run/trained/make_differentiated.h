// run/trained/make_differentiated.h
// A recorded run that gradients are needed of -> a program for each direction: Trained, or a Chain of such
// where the run has to be cut.
#pragma once

#include <memory>

#include "lower/settle.h"
#include "run/recorded.h"
#include "run/trained/make_trained.h"
#include "support/stages.h"

namespace bolt::run {

/// `over_inputs`, `sizes` and what is thrown: make_trained.h. Where it throws, `sizes` are as they were.
std::shared_ptr<Runnable> make_differentiated(const Recorded& recorded, lower::OverInputs& over_inputs,
                                              lower::Sizes& sizes, Stages& stages);

}  // namespace bolt::run

// run/trained/make_step.h
// A recorded run with backward passes in it -> the tape of a whole step, and what makes a WholeStep of its
// program. The run is a region's, or what a piece of one has of it (make_chain.cpp).
#pragma once

#include <functional>
#include <memory>

#include "autograd/step.h"
#include "lower/sizes.h"
#include "run/recorded.h"
#include "run/runnable.h"

namespace bolt::run {

/// Called once, with the program of the step's tape.
using StepOf = std::function<std::shared_ptr<Runnable>(std::shared_ptr<Runnable> program)>;

/// The step's tape takes the place of the run's. Throws Unsupported, before it does, for what cannot
/// be said so.
StepOf begin_step(Recorded& recorded, const lower::Sizes& sizes);

/// `step`, of that run, takes its place.
StepOf begin_step(record::Tape& tape, std::vector<record::TensorId>& wanted, autograd::StepTape step);

}  // namespace bolt::run

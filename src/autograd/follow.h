// autograd/follow.h
// A joint tape of one run, and what differs between calls -> the same tape, in which every number that
// differs is an expression (Arg::syms), and so are the sizes of its tensors.
//
// ATen's C++ is not written for symbols throughout: matmul and others ask a tensor for plain sizes, decide by
// them, and hand on what they compute. Fakes whose sizes are symbols would have to give up whatever passes
// there, which is nearly all. So the run is tried again with other sizes (trial.h), which costs no memory and
// no kernels: what stays the same in all trials is the program, and each number that differs is fitted
// (fit.h).
//
// Trials show what ATen did for some sizes and not what it would do for all. So the result is a guess, and
// whoever runs it asks `agrees`, once for each set of sizes: the run is tried with those very sizes, and
// every operator, number and size must be what the tape says. No call can get a gradient that another branch
// of ATen's would have computed otherwise.
//
//     varied     each symbol by itself, and where the run does not work so, together with those that were as
//                large: then they are one, which is a fact. What varies in neither way is given up: a fact.
//     floats     of sizes (1 / (n - 1) of a variance) have no expression; their sizes are given up.
//     numbers    that are operands of arithmetic, and nothing else, go through as they are. They may differ
//     in
//                each call, so nothing is asked about them; ATen's formulas only look whether a factor is 0
//                or 1, and that it is neither is a fact.
#pragma once

#include <vector>

#include "autograd/joint.h"

namespace bolt::autograd {

/// Fills in the parts of `joint` that tell what differs. With nothing `dynamic`, it leaves it as it is.
void follow(const Asked& asked, const Varying& dynamic, Joint& joint);

/// Is it the joint tape of a call for which the joint's `symbols` have these values?
bool agrees(const Joint& joint, const Asked& asked, const std::vector<int64_t>& values);

}  // namespace bolt::autograd

// loops/put_back.h
// The plan of a shortened graph (graph/repeats.h) -> the plan of the full one.
//
// The steps of such a plan repeat as its nodes do, though not from the same place on: kernels reach over the
// end of a copy. Two neighbouring stretches that are alike step for step (the same code, buffers that
// correspond) say what one more of them reads, makes and leaves for the next:
//
//   before | A | B | after      ->      before | A | A+1 | A+2 ... A+n | B | after
//
// A+i reads the inputs that lie i copies behind A's, what A+(i-1) left, and what all of them share. Each has
// buffers of its own; the kernels are A's. The places of temporaries are found afterwards, for all.
#pragma once

#include <vector>

#include "graph/repeats.h"
#include "loops/plan.h"

namespace bolt::loops {

/// What the caller gets, before memory is decided.
struct Result {
  int buffer;
  int write_to;
  graph::Type type;
};

/// `plan`: steps, fold steps and buffers as the planner made them. `results`: by output of the short graph,
/// then of the full one. False: the steps do not repeat, or not in a way that says all this; nothing was
/// changed.
bool put_back(Plan& plan, const graph::Repeats& repeats, std::vector<Result>& results);

}  // namespace bolt::loops

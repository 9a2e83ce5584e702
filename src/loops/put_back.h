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
//
// That copies repeat does not mean that all about them does: what follows may count them (1 + 1 + ... is
// folded to a number), add up in one kernel what each of them left, or turn a matrix once for each. So it is
// tried: one copy put into the plan must give, step by step, the plan of the graph that has one copy more.
#pragma once

#include <vector>

#include "graph/repeats.h"
#include "loops/plan.h"

namespace bolt::loops {

/// What the caller gets.
struct PlanResult {
  int buffer = -1;
  int write_to = -1;
  graph::Type type;
};

/// A plan before memory is decided.
struct PlanDraft {
  Plan plan;  // steps, fold steps, kernels and buffers
  std::vector<PlanResult> results;
};

/// `draft`: of the short graph, then of the full one. `one_more`: of the graph with one copy more. False: the
/// steps do not repeat, or not in a way that says all this; `draft` is as it was.
bool put_back(PlanDraft& draft, const PlanDraft& one_more, const graph::Repeats& repeats);

}  // namespace bolt::loops

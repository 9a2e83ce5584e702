// run/kept_plans.h
// Graph -> Plan, once for all programs: what one has planned is in the disk cache for the next.
//
// Passes and planning are the greater part of a program's first call when its machine code is there already,
// and of equal graphs they make equal plans. The key is all that they look at: the text of the graph before
// passes, where parameters lie beside each other, which calls are the same, the options, the devices, and the
// builds that plan. What is kept is the plan's own text, which says everything that running it needs, and
// beside it what only reports want. Graphs whose sizes have symbols are planned in each process: what a
// symbol is known to be stands in no text.
#pragma once

#include <memory>
#include <vector>

#include "loops/plan.h"
#include "lower/functionalize.h"
#include "support/stages.h"

namespace bolt::run {

/// loops::from_graph, of a graph whose calls these are, or the same from disk. `may_be_kept`: no size is a
/// symbol, and nothing is measured on the way.
loops::Plan planned(std::unique_ptr<graph::Graph> graph, const std::vector<lower::ExternCall>& calls,
                    const loops::PlanOptions& options, Stages& stages, const std::vector<int>& free_outputs,
                    bool may_be_kept);

}  // namespace bolt::run

// loops/from_graph.h
// Graph -> Plan, through the passes: the graph and loops stages in order. Layers that are equal are optimised
// and planned once (graph/repeats.h, put_back.h), wherever the whole plan can be made of that.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "loops/plan.h"
#include "support/stages.h"

namespace bolt::loops {

/// `same_call`: do two extern nodes, by their `call` attribute, call the same operator with the same
/// arguments? Verifies the graph. `free_outputs`: of choose_layouts (layout.h).
BOLT_API Plan from_graph(std::unique_ptr<graph::Graph> graph,
                         const std::function<bool(int64_t, int64_t)>& same_call, const PlanOptions& options,
                         Stages& stages, const std::vector<int>& free_outputs = {});

}  // namespace bolt::loops

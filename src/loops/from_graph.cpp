// loops/from_graph.cpp
#include "loops/from_graph.h"

#include "graph/passes/passes.h"
#include "graph/repeats.h"
#include "graph/verify.h"
#include "loops/layout.h"
#include "support/log.h"
#include "support/parallel.h"

namespace bolt::loops {
namespace {

void optimise(graph::Graph& g, const PlanOptions& options) {
  graph::verify(g);
  graph::optimize(g, {.rounds_as_eager = options.rounds_as_eager, .widens = options.widens});
  if (log_wanted("post_grad_graphs")) log("post_grad_graphs", graph::print(g));
}

}  // namespace

Plan from_graph(std::unique_ptr<graph::Graph> graph, const std::function<bool(int64_t, int64_t)>& same_call,
                const PlanOptions& options, Stages& stages, const std::vector<int>& free_outputs) {
  stages.enter("graph");
  // In a shortened graph the results stand at other places.
  auto few = free_outputs.empty() ? graph::shorten(*graph, same_call) : std::nullopt;
  if (few) {
    in_parallel(2, [&](size_t i) { optimise(i == 0 ? *few->graph : *few->one_more, options); });
    stages.enter("loops");
    if (auto planned = plan(std::move(*few), options)) return std::move(*planned);
    log("fusion", "the steps of equal layers differ: all of them are planned");
    stages.enter("graph");
  }
  optimise(*graph, options);
  stages.enter("loops");
  if (!free_outputs.empty()) choose_layouts(*graph, options, free_outputs);
  return plan(std::move(graph), options);
}

}  // namespace bolt::loops

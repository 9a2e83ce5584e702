// graph/repeats.h
// Equal layers are compiled once: Graph -> the same graph with a few of them, and what was left out.
//
//   %3 = layer(%2, %w3)                   Eighty stretches of nodes that differ only in the inputs they read
//   %4 = layer(%3, %w4)        ->         (their weights), each reading values of the one before: three
//   %5 = layer(%4, %w5) ...               are kept, and everything up to the plan is made for these alone.
//
// loops/put_back.h repeats the steps of such a plan for the copies that are missing, and looks at the plan of
// one copy more to see that this is what one copy more comes to. Nothing is shortened where a copy reads what
// lies further back than its neighbour, where copies share some of their inputs and not others, or where what
// follows them reads another than the last.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "graph/ir.h"
#include "support/export.h"

namespace bolt::graph {

/// What each copy of the full graph has of its own, at equal places: by copy, then by place.
using Places = std::vector<std::vector<int>>;

struct Repeats {
  int left_out = 0;                  // copies: the short graph has so many fewer
  Places inputs;                     // graph inputs
  Places calls;                      // `call` of extern nodes
  Places outputs;                    // of the full graph
  std::vector<Output> full_outputs;  // what the full graph returns and writes; the values are not to be used
  /// Of each output of the short graph, and of the one with a copy more, which of the full one's it is.
  std::vector<int> output_of, output_of_longer;
};

struct Shortened {
  std::unique_ptr<Graph> graph, one_more;
  Repeats repeats;
};

/// Do two `call`s of extern nodes do the same?
using SameCall = std::function<bool(int64_t, int64_t)>;

/// Nothing where too few equal stretches follow each other. The graph is renumbered.
BOLT_API std::optional<Shortened> shorten(Graph& g, const SameCall& same_call);

}  // namespace bolt::graph

// autograd/min_cut.h
// A network of capacities -> the cheapest set of edges that parts its source from its sink (Dinic's
// algorithm: shortest ways first, and all ways of one length at once).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bolt::autograd {

class Network {
 public:
  static constexpr int64_t kUncuttable = INT64_MAX / 4;
  static constexpr int kSource = 0, kSink = 1;

  int add_node();
  void add_edge(int from, int to, int64_t capacity);

  /// By node: is it on the sink's side? Of several cheapest cuts it is the one with the fewest there. False:
  /// nothing but an uncuttable edge parts them.
  bool cut(std::vector<bool>& on_sink_side);

 private:
  struct Edge {
    int to;
    int64_t left;  ///< of its capacity; edge ^ 1 goes back
  };
  bool find_levels();
  int64_t push(int node, int64_t amount);

  std::vector<Edge> edges_;
  std::vector<std::vector<int>> at_{2};  ///< by node: edges that leave it
  std::vector<int> level_;               ///< steps to the sink
  std::vector<std::size_t> next_;        ///< by node: the first edge that may still carry something
};

}  // namespace bolt::autograd

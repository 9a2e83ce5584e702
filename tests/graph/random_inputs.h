// tests/graph/random_inputs.h
// Data for reference runs: small numbers, indices in range, symbols as small
// sizes.
#pragma once

#include <random>

#include "tests/reference/graph.h"
#include "tests/reference/graph_ops.h"

namespace bolt::graph {

/// How large an index into a table may be: the smallest dimension that any indexing node of the graph looks
/// up.
inline int64_t index_limit(const Graph& g) {
  int64_t limit = 8;
  for (const auto& n : g.nodes) {
    bool gathers = n->op == Op::gather || n->op == Op::index_select;
    if (!gathers && n->op != Op::embedding) continue;
    Sym size = n->operands[0]->type.sizes[gathers ? n->attr<int64_t>("dim") : 0];
    limit = std::min(limit, size.value_or(limit));
  }
  return limit;
}

inline std::vector<HostTensor> random_inputs(const Graph& g, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(-2, 2);
  int64_t limit = index_limit(g);
  std::vector<HostTensor> out;
  for (const Input& in : g.inputs) {
    std::vector<int64_t> sizes;
    // One value per name, so that equal symbols are equal sizes.
    for (Sym s : in.value->type.sizes)
      sizes.push_back(
          evaluate(s, [](const SymNode& n) { return 3 + static_cast<int64_t>(n.name.back() % 4); }));
    HostTensor t = make_tensor(in.value->type.dtype, sizes);
    for (Cell& c : t.cells) {
      if (t.is_real()) {
        c.real = round_to(t.dtype, real(random));
      } else {
        c.whole = static_cast<int64_t>(random() % static_cast<unsigned>(t.dtype == DType::Bool ? 2 : limit));
      }
    }
    out.push_back(std::move(t));
  }
  return out;
}

/// The largest difference between two graphs' results on random inputs.
inline double compare_graphs(const Graph& a, const Graph& b, unsigned seed) {
  std::vector<HostTensor> inputs = random_inputs(a, seed);
  std::vector<HostTensor> x = run_reference(a, inputs), y = run_reference(b, inputs);
  double worst = x.size() == y.size() ? 0 : INFINITY;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) worst = std::max(worst, difference(x[i], y[i]));
  return worst;
}

}  // namespace bolt::graph

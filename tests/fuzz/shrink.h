// tests/fuzz/shrink.h
// A failing case -> a smaller one that fails too: the fewest outputs, nodes cut off at an input that holds
// their value, nodes skipped where an operand has the result's type. Greedy, until nothing goes.
#pragma once

#include <functional>

#include "graph/passes/passes.h"
#include "tests/fuzz/generator.h"

namespace bolt::fuzz {

using Fails = std::function<bool(const Case&)>;

inline Case copy(const Case& c) { return {graph::clone(*c.graph), c.inputs}; }

/// Inputs that nothing reads go, with their data.
inline void drop_unused(Case& c) {
  graph::dce(*c.graph);
  c.graph->renumber();
  std::vector<int> uses = c.graph->use_counts();
  std::vector<int> place(c.inputs.size(), -1);
  std::vector<graph::Input> kept;
  std::vector<HostTensor> data;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    bool written = std::any_of(c.graph->outputs.begin(), c.graph->outputs.end(),
                               [&](const graph::Output& o) { return o.write_to == static_cast<int>(i); });
    if (!uses[i] && !written) continue;
    place[i] = static_cast<int>(kept.size());
    c.graph->inputs[i].value->index = place[i];
    kept.push_back(std::move(c.graph->inputs[i]));
    data.push_back(std::move(c.inputs[i]));
  }
  c.graph->inputs = std::move(kept);
  c.inputs = std::move(data);
  for (graph::Output& o : c.graph->outputs)
    if (o.write_to >= 0) o.write_to = place[static_cast<size_t>(o.write_to)];
  c.graph->renumber();
}

inline Node* node_at(const Case& c, size_t index) {
  return std::next(c.graph->nodes.begin(), static_cast<std::ptrdiff_t>(index))->get();
}

/// The value becomes an input that holds it.
inline bool cut(Case& c, size_t index) {
  Node* n = node_at(c, index);
  HostTensor data = samples_of(*c.graph, c.inputs).at(n->out()).exact;
  for (graph::Cell& cell : data.cells)
    if (data.is_real()) cell.real = graph::round_to(data.dtype, cell.real);
  graph::Type type = n->out()->type;
  type.strides = graph::contiguous_strides(type.sizes);
  c.graph->replace_uses(n->out(), c.graph->add_input(type, graph::InputKind::Arg));
  c.inputs.push_back(std::move(data));
  return true;
}

inline bool skip(Case& c, size_t index) {
  Node* n = node_at(c, index);
  for (Value* v : n->operands)
    if (v->type.dtype == n->out()->type.dtype && v->type.sizes == n->out()->type.sizes) {
      c.graph->replace_uses(n->out(), v);
      return true;
    }
  return false;
}

inline bool drop_output(Case& c, size_t index) {
  if (c.graph->outputs.size() < 2) return false;
  c.graph->outputs.erase(c.graph->outputs.begin() + static_cast<std::ptrdiff_t>(index));
  return true;
}

/// One round of `change` at every place, last first; true when one of them was kept.
inline bool round_of(Case& c, size_t count, bool (*change)(Case&, size_t), const Fails& fails) {
  bool any = false;
  for (size_t i = count; i-- > 0;) {
    Case smaller = copy(c);
    const Graph& g = *smaller.graph;  // an earlier change may have taken more than one
    if (i >= (change == drop_output ? g.outputs.size() : g.nodes.size()) || !change(smaller, i)) continue;
    drop_unused(smaller);
    if (smaller.graph->nodes.empty() || !fails(smaller)) continue;
    c = std::move(smaller);
    any = true;
  }
  return any;
}

inline Case shrink(Case c, const Fails& fails) {
  for (bool more = true; more;) {
    more = round_of(c, c.graph->outputs.size(), drop_output, fails);
    more |= round_of(c, c.graph->nodes.size(), cut, fails);
    more |= round_of(c, c.graph->nodes.size(), skip, fails);
  }
  return c;
}

/// Tightens the limits of a seed (fewer nodes, smaller sizes) as long as it still fails.
inline Case tighten(unsigned seed, Limits limits, const Fails& fails) {
  for (int64_t size : {2, 3, 5, 9, 17})
    for (int nodes : {2, 4, 8}) {
      Limits tight{nodes, size, limits.numel};
      Case c = Generator(seed, tight).run();
      if (!c.graph->nodes.empty() && fails(c)) return c;
    }
  return Generator(seed, limits).run();
}

}  // namespace bolt::fuzz

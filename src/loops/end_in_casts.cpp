// loops/end_in_casts.cpp
#include "loops/end_in_casts.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "loops/roles.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::Value;

class Casts {
 public:
  Casts(graph::Graph& g, const PlanOptions& options) : g_(g), options_(options), uses_(g.use_counts()) {
    for (const auto& node : g.nodes)
      for (const Value* v : node->operands) readers_[v].push_back(node.get());
    for (const graph::Output& output : g.outputs)
      if (output.write_to < 0) returned_.insert(output.value);
  }

  bool run() {
    std::unordered_map<Value*, Value*> with;
    std::vector<Node*> gone;
    for (const auto& node : g_.nodes) {
      if (node->op != Op::cast || node->out()->type.dtype != DType::F32 || !is_stored(node->out())) continue;
      std::vector<Node*> behind;  // the product, and reshapes of it
      if (!comes_of_a_product(node->operands[0], behind)) continue;
      behind.back()->attrs["wide"] = true;
      for (Node* made : behind) made->out()->type.dtype = DType::F32;
      with[node->out()] = node->operands[0];
      gone.push_back(node.get());
    }
    g_.replace_uses(with);
    for (Node* node : gone) g_.erase(node);
    return !gone.empty();
  }

 private:
  bool comes_of_a_product(const Value* v, std::vector<Node*>& behind) const {
    Node* maker = v->def;
    if (!maker || uses_[v->id] != 1) return false;
    behind.push_back(maker);
    if (maker->op == Op::reshape) return comes_of_a_product(maker->operands[0], behind);
    return is_half(v->type.dtype) && is_of_matrices(*maker) && options_.ends_in_float(*maker);
  }

  /// Those that libraries have with results of another type.
  static bool is_of_matrices(const Node& node) {
    if (node.op == Op::linear) return node.operands.size() == 2 && !node.has_attr("activation");
    if (node.op != Op::matmul) return false;
    const graph::Type &a = node.operands[0]->type, &b = node.operands[1]->type;
    return b.rank() == 2 || (a.rank() == 3 && b.rank() == 3 && a.sizes[0] == b.sizes[0]);
  }

  /// By all that read it, and not by a kernel. What is scattered into is memory.
  bool is_stored(const Value* v) const {
    const auto readers = readers_.find(v);
    const bool read = readers != readers_.end();
    if (!read) return returned_.contains(v);
    return std::ranges::all_of(readers->second, [&](const Node* reader) {
      if (reader->op == Op::reshape) return is_stored(reader->out());
      if (reader->op == Op::keep) return true;  // no kernel computes it where it reads what is kept
      if (reader->op == Op::scatter) return reader->operands[0] == v && reader->operands[2] != v;
      return is_call(reader);
    });
  }

  graph::Graph& g_;
  const PlanOptions& options_;
  const std::vector<int> uses_;
  std::unordered_map<const Value*, std::vector<Node*>> readers_;
  std::unordered_set<const Value*> returned_;
};

}  // namespace

bool end_in_casts(graph::Graph& g, const PlanOptions& options) {
  return options.ends_in_float && !options.rounds_as_eager && Casts(g, options).run();
}

}  // namespace bolt::loops

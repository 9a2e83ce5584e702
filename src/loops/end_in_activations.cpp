// loops/end_in_activations.cpp
#include "loops/end_in_activations.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace bolt::loops {

using graph::Node;
using graph::Op;
using graph::Value;

bool end_in_activations(graph::Graph& g, const PlanOptions& options) {
  if (!options.ends_in_gelu) return false;
  const std::vector<int> uses = g.use_counts();
  std::unordered_map<Value*, Value*> with;
  std::vector<Node*> gone;
  for (const auto& node : g.nodes) {
    if (node->op != Op::gelu || node->attr<std::string>("approximate") != "tanh") continue;
    Node* product = node->operands[0]->def;
    if (product && product->op == Op::reshape && uses[product->out()->id] == 1)
      product = product->operands[0]->def;
    if (options.rounds_as_eager && is_half(node->out()->type.dtype)) continue;
    if (!product || product->op != Op::linear || product->operands.size() != 3 ||
        product->has_attr("activation") || uses[product->out()->id] != 1 || !options.ends_in_gelu(*product))
      continue;
    product->attrs["activation"] = std::string("gelu_tanh");
    with[node->out()] = node->operands[0];
    gone.push_back(node.get());
  }
  g.replace_uses(with);
  for (Node* node : gone) g.erase(node);
  return !gone.empty();
}

}  // namespace bolt::loops

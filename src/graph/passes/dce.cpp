// graph/passes/dce.cpp
// Removes nodes whose results nobody uses, last to first. An extern_call stays when it says so (`effect` =
// true): what ATen does besides giving results is known to the extension only.
#include "graph/passes/passes.h"
#include "support/pointer_map.h"

namespace bolt::graph {

bool dce(Graph& g) {
  PointerMap<bool> used;
  for (const Output& out : g.outputs) used[out.value] = true;
  size_t before = g.nodes.size();
  for (auto it = g.nodes.end(); it != g.nodes.begin();) {
    --it;
    const Node& node = **it;
    bool keep = node.attr_or<bool>("effect", false);
    for (const auto& out : node.outputs) keep = keep || used.find(out.get());
    if (keep) {
      for (const Value* operand : node.operands) used[operand] = true;
    } else {
      it = g.nodes.erase(it);
    }
  }
  return g.nodes.size() != before;
}

}  // namespace bolt::graph

// loops/narrow_weights.cpp
#include "loops/narrow_weights.h"

#include <vector>

#include "loops/roles.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::Value;

/// The halves that these weights are made of by nothing but a cast.
Value* narrow_form(const Node& contraction) {
  if (contraction.op != Op::linear && contraction.op != Op::conv) return nullptr;
  const Node* cast = contraction.operands[1]->def;
  if (!cast || cast->op != Op::cast || contraction.out()->type.dtype != DType::F32) return nullptr;
  Value* narrow = cast->operands[0];
  return compute_type(narrow->type.dtype) == DType::F32 ? narrow : nullptr;
}

}  // namespace

bool narrow_weights(graph::Graph& g, const PlanOptions& options) {
  if (!options.generates) return false;
  std::vector<char> constant;
  std::vector<int> uses;
  bool any = false;
  for (const auto& node : g.nodes) {
    Value* narrow = narrow_form(*node);
    if (!narrow) continue;
    if (constant.empty()) {
      constant = find_constants(g, options);
      uses = g.use_counts();
    }
    PlannedContraction call{*node, {}, {}};
    for (const Value* v : node->operands) {
      call.operands.push_back(v->type);
      call.constant.push_back(constant[v->id]);
    }
    call.operands[1] = narrow->type;
    if (!options.generates(call)) continue;
    Value* wide = node->operands[1];
    node->operands[1] = narrow;
    if (--uses[wide->id] == 0) g.erase(wide->def);
    any = true;
  }
  return any;
}

}  // namespace bolt::loops

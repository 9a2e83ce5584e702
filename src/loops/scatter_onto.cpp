// loops/scatter_onto.cpp
#include "loops/scatter_onto.h"

#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace bolt::loops {

using graph::Node;
using graph::Op;
using graph::Value;

namespace {

bool is_zeros(const Value* v) {
  if (!v->def || v->def->op != Op::full) return false;
  const auto* value = std::get_if<double>(&v->def->attrs.find("value")->second);
  return value && *value == 0;
}

bool sums_into_zeros(const Value* v) {
  return v->def && v->def->op == Op::scatter && v->def->attr<std::string>("op") == "sum" &&
         is_float(v->type.dtype) && is_zeros(v->def->operands[0]);
}

}  // namespace

bool scatter_onto(graph::Graph& g) {
  const std::vector<int> uses = g.use_counts();
  std::unordered_map<Value*, Value*> with;
  std::vector<Node*> gone;
  for (const auto& node : g.nodes) {
    Node* sum = node.get();
    if (sum->op != Op::add) continue;
    for (const int side : {0, 1}) {
      Value *scattered = sum->operands[side], *onto = sum->operands[1 - static_cast<size_t>(side)];
      if (!sums_into_zeros(scattered) || uses[scattered->id] != 1) continue;
      if (onto->type.sizes != scattered->type.sizes || onto->type.dtype != scattered->type.dtype) continue;
      if (!onto->def || uses[onto->id] != 1) continue;
      const std::vector<Value*> operands{onto, scattered->def->operands[1], scattered->def->operands[2]};
      Node* made =
          g.make_typed(Op::scatter, operands, scattered->def->attrs, {sum->out()->type}, sum->loc, sum);
      with[sum->out()] = made->out();
      gone.push_back(sum);
      gone.push_back(scattered->def);
      break;
    }
  }
  g.replace_uses(with);
  for (Node* node : gone) g.erase(node);
  return !gone.empty();
}

}  // namespace bolt::loops

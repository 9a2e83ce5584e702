// graph/passes/rewrite.cpp
#include "graph/passes/rewrite.h"

#include "graph/passes/passes.h"
#include "graph/verify.h"
#include "support/error.h"

namespace bolt::graph {

namespace {

/// A view has no memory of its own, and kernels store in any order: what takes the place of a result lies as
/// that did, unless it is another result already.
void lie_as_result(const Graph& g, Value* v, const Value* recorded) {
  if (!v->def) return;
  const OpKind kind = op_info(v->def->op).kind;
  const bool is_stored_anyhow = kind == OpKind::Pointwise || kind == OpKind::Reduce || kind == OpKind::Index;
  if (kind != OpKind::View && !is_stored_anyhow) return;
  for (const Output& out : g.outputs)
    if (out.value == v) return;
  lying_as(v, recorded);
}

}  // namespace

bool rewrite(Graph& g, const std::function<Value*(Node*)>& rule) {
  return rewrite_results(g, [&](Node* node) {
    Value* v = rule(node);
    return v && v != node->out() ? std::vector{v} : std::vector<Value*>();
  });
}

bool rewrite_results(Graph& g, const std::function<std::vector<Value*>(Node*)>& rule) {
  std::unordered_map<Value*, Value*> with;
  for (auto it = g.nodes.begin(); it != g.nodes.end(); ++it) {
    Node* node = it->get();
    // A replacement stands before this node and was itself visited, so one step is enough.
    if (!with.empty())
      for (Value*& operand : node->operands)
        if (auto found = with.find(operand); found != with.end()) operand = found->second;
    const std::vector<Value*> made = rule(node);
    for (size_t i = 0; i < made.size(); ++i) {
      const Type &from = node->out(static_cast<int>(i))->type, &to = made[i]->type;
      BOLT_CHECK(from.sizes == to.sizes && from.dtype == to.dtype, "a rewrite gives ", to.str(), " for ",
                 describe(*node));
      with[node->out(static_cast<int>(i))] = made[i];
    }
  }
  if (with.empty()) return false;
  for (Output& out : g.outputs)
    if (auto found = with.find(out.value); found != with.end()) {
      lie_as_result(g, found->second, out.value);
      out.value = found->second;
    }
  dce(g);
  return true;
}

std::optional<double> scalar_of(const Value* v) {
  if (!is_op(v, Op::scalar)) return std::nullopt;
  const Attr& a = v->def->attrs.find("value")->second;
  if (const double* d = std::get_if<double>(&a)) return *d;
  if (const int64_t* i = std::get_if<int64_t>(&a)) return static_cast<double>(*i);
  if (const bool* b = std::get_if<bool>(&a)) return *b;
  return std::nullopt;
}

}  // namespace bolt::graph

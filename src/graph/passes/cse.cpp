// graph/passes/cse.cpp
// Equal nodes (operation, operands, attributes, type) become the first of them. Operands of commutative
// operations are compared in either order. extern_call is left alone: it may draw random numbers.
#include <algorithm>
#include <cmath>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "support/text.h"

namespace bolt::graph {
namespace {

bool commutative(Op op) {
  switch (op) {
    case Op::add:
    case Op::mul:
    case Op::maximum:
    case Op::minimum:
    case Op::eq:
    case Op::ne:
    case Op::bitwise_and:
    case Op::bitwise_or:
    case Op::bitwise_xor: return true;
    default: return false;
  }
}

struct AttrHash {
  size_t operator()(int64_t v) const { return std::hash<int64_t>()(v); }
  size_t operator()(double v) const { return std::hash<double>()(v); }
  size_t operator()(bool v) const { return v; }
  size_t operator()(const std::string& v) const { return hash_text(v); }
  size_t operator()(DType v) const { return static_cast<size_t>(v); }
  size_t operator()(const Syms& v) const {
    size_t h = v.size();
    for (Sym s : v) h = h * 31 + std::hash<Sym>()(s);
    return h;
  }
  size_t operator()(const std::vector<double>& v) const {
    size_t h = v.size();
    for (double d : v) h = h * 31 + std::hash<double>()(d);
    return h;
  }
};

size_t hash_node(const Node& n) {
  size_t h = static_cast<size_t>(n.op) * 0x9e3779b97f4a7c15ull, operands = 0;
  for (const Value* v : n.operands) {
    size_t one = std::hash<const void*>()(v);
    operands = commutative(n.op) ? operands + one : operands * 31 + one;
  }
  for (const auto& [name, value] : n.attrs) h = h * 31 + std::visit(AttrHash(), value);
  return h * 31 + operands;
}

// 0.0 and -0.0 are equal, but not the same number: 1 / x and copysign tell them apart.
bool same_zeros(const Attrs& a, const Attrs& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    const double *p = std::get_if<double>(&x.second), *q = std::get_if<double>(&y.second);
    return !p || !q || std::signbit(*p) == std::signbit(*q);
  });
}

bool same(const Node& a, const Node& b) {
  if (a.op != b.op || a.attrs != b.attrs || !same_zeros(a.attrs, b.attrs) || a.out()->type != b.out()->type)
    return false;
  if (a.operands == b.operands) return true;
  return commutative(a.op) && a.operands[0] == b.operands[1] && a.operands[1] == b.operands[0];
}

}  // namespace

bool cse(Graph& g) {
  std::unordered_multimap<size_t, Node*> seen;
  seen.reserve(g.nodes.size());
  return rewrite(g, [&](Node* node) -> Value* {
    if (node->op == Op::extern_call) return nullptr;
    size_t h = hash_node(*node);
    auto [first, last] = seen.equal_range(h);
    for (auto it = first; it != last; ++it)
      if (same(*it->second, *node)) return it->second->out();
    seen.emplace(h, node);
    return nullptr;
  });
}

}  // namespace bolt::graph

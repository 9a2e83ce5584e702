// loops/again.cpp
#include "loops/again.h"

#include <algorithm>

#include "graph/pointwise.h"
#include "loops/cost.h"
#include "loops/roles.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

// What is computed once more at a time; each reader's kernel grows by it.
constexpr size_t kMaxRepeated = 12;
// What is smaller by this stays in a cache beside what is read with it.
constexpr int64_t kFarSmaller = 16;

/// A value that is handed on to a later part of the program is the same memory there.
const Value* behind_keep(const Value* v) {
  while (v->def && v->def->op == Op::keep) v = v->def->operands[0];
  return v;
}

}  // namespace

std::optional<Again> computed_again(const Value* v, const std::function<bool(const Value*)>& in_memory,
                                    const std::function<bool(const Node*)>& may) {
  Again again;
  std::vector<const Value*> wanted = {v};
  auto is_possible = [&](const Node* n) { return n && kind_of(n) == OpKind::Pointwise && may(n); };
  while (!wanted.empty()) {
    const Node* n = wanted.back()->def;
    wanted.pop_back();
    if (std::find(again.nodes.begin(), again.nodes.end(), n) != again.nodes.end()) continue;
    if (!is_possible(n) || again.nodes.size() == kMaxRepeated) return std::nullopt;
    again.nodes.push_back(n);
    again.instructions += instructions_of(*n);
    for (const Value* o : n->operands) {
      const Value *base = view_base(o), *made = behind_keep(o);
      if (estimate(base->type.numel()) * kFarSmaller <= estimate(v->type.numel())) {
        // A number a channel that takes an instruction is not worth a place in memory.
        if (!in_memory(base) && is_possible(base->def) && graph::instructions(base->def->op) == 1)
          wanted.push_back(base);
        continue;
      }
      if (made->type.numel() != v->type.numel()) return std::nullopt;
      if (made == o && !in_memory(made)) {
        wanted.push_back(made);
        continue;
      }
      if (!in_memory(made) || (again.from && again.from != made)) return std::nullopt;
      again.from = made;
    }
  }
  return again;
}

}  // namespace bolt::loops

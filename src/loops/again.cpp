// loops/again.cpp
#include "loops/again.h"

#include <algorithm>

#include "graph/pointwise.h"
#include "loops/cost.h"
#include "loops/roles.h"
#include "loops/units.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

// What is computed once more at a time; each reader's kernel grows by it.
constexpr size_t kMaxRepeated = 12;
constexpr size_t kMostLarge = 2;
// What is smaller by this stays in a cache beside what is read with it.
constexpr int64_t kFarSmaller = 16;

/// A value that is handed on to a later part of the program is the same memory there.
const Value* behind_keep(const Value* v) {
  while (v->def && v->def->op == Op::keep) v = v->def->operands[0];
  return v;
}

}  // namespace

std::optional<Again> computed_again(const Value* v, const Lying& lying) {
  Again again;
  std::vector<const Value*> wanted = {v};
  std::vector<const Node*> seen;
  const int here = lying.made_by[v->id];
  auto in_memory = [&](const Value* x) { return lying.in_memory[x->id] != 0; };
  auto is_by_readers = [&](const Node* n) { return lying.made_by[n->out()->id] == Lying::kByReaders; };
  auto is_possible = [&](const Node* n) {
    return n && kind_of(n) == OpKind::Pointwise && here >= 0 &&
           (lying.made_by[n->out()->id] == here || is_by_readers(n));
  };
  while (!wanted.empty()) {
    const Node* n = wanted.back()->def;
    wanted.pop_back();
    if (std::find(seen.begin(), seen.end(), n) != seen.end()) continue;
    if (!is_possible(n) || seen.size() == kMaxRepeated) return std::nullopt;
    seen.push_back(n);
    if (!is_by_readers(n)) again.nodes.push_back(n);
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
      if (!in_memory(made)) return std::nullopt;
      if (std::find(again.from.begin(), again.from.end(), made) == again.from.end())
        again.from.push_back(made);
    }
  }
  return again.from.size() <= kMostLarge ? std::optional(std::move(again)) : std::nullopt;
}

bool pays_again(const Value* v, const Again& again, size_t readers, double fetched) {
  const auto kernels = static_cast<double>(readers);
  const double saved = Units::bytes_of(v) * (1 + kernels) - fetched;
  const MachineSpeed& machine = graph::facts_of(v->type.device).speed;
  return saved > 0 &&
         again.instructions * kernels / machine.instructions_per_ns <= saved / machine.bytes_per_ns;
}

}  // namespace bolt::loops

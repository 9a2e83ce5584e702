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

std::optional<Again> computed_again(const Value* v, const Lying& lying) {
  Again again;
  std::vector<const Value*> wanted = {v};
  const int here = lying.made_by[v->id];
  auto in_memory = [&](const Value* x) { return lying.in_memory[x->id] != 0; };
  auto is_possible = [&](const Node* n) {
    return n && kind_of(n) == OpKind::Pointwise && here >= 0 && lying.made_by[n->out()->id] == here;
  };
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

bool pays_again(const Value* v, const Again& again, size_t readers, size_t fetch, double least) {
  auto bytes = [](const Value* x) {
    return static_cast<double>(estimate(x->type.numel())) * dtype_bytes(x->type.dtype);
  };
  const auto kernels = static_cast<double>(readers);
  const double saved =
      bytes(v) * (1 + kernels) - (fetch ? static_cast<double>(fetch) * bytes(again.from) : 0);
  const MachineSpeed& machine = graph::facts_of(v->type.device).speed;
  return saved > least &&
         again.instructions * kernels / machine.instructions_per_ns <= saved / machine.bytes_per_ns;
}

}  // namespace bolt::loops

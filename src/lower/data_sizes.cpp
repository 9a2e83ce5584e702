// lower/data_sizes.cpp
#include "lower/data_sizes.h"

#include <algorithm>

namespace bolt::lower {

bool makes_data_sizes(const record::Tape& tape, const record::TensorIds& made, int entry) {
  return std::any_of(made.begin(), made.end(), [&](record::TensorId id) {
    return id >= 0 && tape.tensors[id].data_dims && tape.tensors[id].producer == entry;
  });
}

std::vector<Syms> with_data_sizes(const record::Tape& tape, const record::TensorIds& made,
                                  std::vector<Syms> sizes, const Sizes& all) {
  Sym size = 0;
  for (size_t i = 0; i < made.size(); ++i)
    for (size_t d = 0; made[i] >= 0 && d < sizes[i].size(); ++d) {
      if (!sizes[i][d].is_const(0)) continue;
      const record::TensorInfo& info = tape.tensors[made[i]];
      if (info.data_dims >> d & 1) size = all.resolve(data_size(made[i], static_cast<int>(d)));
      sizes[i][d] = info.sizes[d] == 0 ? Sym(0) : size;
    }
  return sizes;
}

void rule_out_nothing(const graph::Graph& graph, const graph::Node*& seen, Sizes& sizes) {
  using graph::OpKind;
  const auto& nodes = graph.nodes;
  for (auto at = nodes.rbegin(); at != nodes.rend() && at->get() != seen; ++at) {
    const graph::Node& n = **at;
    const OpKind kind = graph::op_info(n.op).kind;
    if (kind != OpKind::Reduce && kind != OpKind::Composite && kind != OpKind::Library) continue;
    auto remains = [&](Sym size) {
      return std::any_of(n.outputs.begin(), n.outputs.end(), [&](const auto& v) {
        return std::find(v->type.sizes.begin(), v->type.sizes.end(), size) != v->type.sizes.end();
      });
    };
    for (const graph::Value* v : n.operands)
      for (Sym size : v->type.sizes)
        if (holds_data_size(size) && !remains(size)) sizes.decide(1, Relation::le, size, "nothing to reduce");
  }
  seen = nodes.empty() ? nullptr : nodes.back().get();
}

}  // namespace bolt::lower

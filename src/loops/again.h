// loops/again.h
// Fused value -> what it takes to compute it once more where it is read, instead of storing it there.
//
// That is for pointwise work on one large value at the places of its own result, beside what is far smaller:
// an image normalised by statistics of its channels. It is asked twice: of values that are made of narrower
// ones before anything is merged (roles.cpp), and of what kernels store for each other when they have been
// merged (compute_where_read.cpp).
#pragma once

#include <optional>
#include <vector>

#include "graph/ir.h"

namespace bolt::loops {

/// By value id.
struct Lying {
  std::vector<char> in_memory;  ///< it lies there whoever computes it
  /// Which kernel computes it, if its node may be computed where it is read; -1: it may not. Nodes of several
  /// kernels are not computed again together.
  std::vector<int> made_by;
};

struct Again {
  double instructions = 0;             ///< of all elements
  const graph::Value* from = nullptr;  ///< the large value in memory, if any
  std::vector<const graph::Node*> nodes;
};
std::optional<Again> computed_again(const graph::Value* v, const Lying& lying);

/// Is it less work for `readers` kernels to compute `v` than for one to store it and for them to load it?
/// `fetch`: how many kernels read again.from for that alone. `least`: bytes that it must save beyond that.
bool pays_again(const graph::Value* v, const Again& again, size_t readers, size_t fetch, double least);

}  // namespace bolt::loops

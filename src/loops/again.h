// loops/again.h
// Fused value -> what it takes to compute it once more where it is read, instead of storing it there.
//
// That is for pointwise work on one or two large values at the places of its own result, beside what is far
// smaller: an image normalised by statistics of its channels, or that normalisation's gradient. It is asked
// twice: of values that are made of narrower ones before anything is merged (roles.cpp), and of what kernels
// store for each other when they have been merged (compute_where_read.cpp).
#pragma once

#include <optional>
#include <vector>

#include "graph/ir.h"

namespace bolt::loops {

/// By value id.
struct Lying {
  std::vector<char> in_memory;  ///< it lies there whoever computes it
  /// Which kernel computes it, if its node may be computed where it is read. Nodes of several kernels are not
  /// computed again together.
  std::vector<int> made_by;
  static constexpr int kNowhereElse = -1;  ///< it may not be computed where it is read
  static constexpr int kByReaders = -2;    ///< each kernel that reads it does so already
};

struct Again {
  double instructions = 0;                ///< of all elements
  std::vector<const graph::Value*> from;  ///< the large values in memory
  std::vector<const graph::Node*> nodes;  ///< without what readers compute already
};
std::optional<Again> computed_again(const graph::Value* v, const Lying& lying);

/// Is it less work for `readers` kernels to compute `v` than for one to store it and for them to load it?
/// `fetched`: bytes that these read for that alone. Where the kernels are known, their prices say more.
bool pays_again(const graph::Value* v, const Again& again, size_t readers, double fetched);

}  // namespace bolt::loops

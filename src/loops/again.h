// loops/again.h
// Fused value -> what it takes to compute it once more where it is read, instead of storing it there.
//
// That is for pointwise work on one large value at the places of its own result, beside what is far smaller:
// an image normalised by statistics of its channels. Whether it pays is fuse.cpp's to say, which knows who
// reads what.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "graph/ir.h"

namespace bolt::loops {

struct Again {
  double instructions = 0;             ///< of all elements
  const graph::Value* from = nullptr;  ///< the large value in memory, if any
  std::vector<const graph::Node*> nodes;
};

/// `in_memory`: does it lie there whoever computes it? `may`: is it a node that may be computed where it is
/// read?
std::optional<Again> computed_again(const graph::Value* v,
                                    const std::function<bool(const graph::Value*)>& in_memory,
                                    const std::function<bool(const graph::Node*)>& may);

}  // namespace bolt::loops

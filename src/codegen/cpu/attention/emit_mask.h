// codegen/cpu/attention/emit_mask.h
// a block of scores [keys, queries], queries being lanes -> scaled, masked, and their maxima
//
// A mask lies as [queries, keys] mostly, across the scores. Where its keys are neighbours in memory, squares
// of it are transposed in registers; where all queries share it, each key's number is spread; anything else
// is gathered. The causal rule is a comparison of numbers of lanes.
#pragma once

#include <llvm/IR/Module.h>

#include <optional>
#include <string>

#include "support/sym.h"

namespace bolt::codegen::cpu::attention {

struct MaskShape {
  int lanes;
  int width;    ///< distance of the scores' rows
  int vectors;  ///< of queries
  double scale;
  bool causal;
  struct Memory {
    Sym query_stride, key_stride;
    bool boolean;
    bool half;  ///< bfloat16
  };
  std::optional<Memory> mask;
};

/// void mask(float* scores, int64_t keys, const void* mask, int64_t queries, int64_t query_less_key, float*
/// maximum, int64_t query_stride, int64_t key_stride): the mask from the block's first query and key on; how
/// much farther the first query is than the first key; the running maxima; the strides, where they are not
/// constants. Scores are room for a whole number of vectors of keys.
llvm::Function* emit_mask_function(llvm::Module& module, const std::string& name, const MaskShape& shape);

}  // namespace bolt::codegen::cpu::attention

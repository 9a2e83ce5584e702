// codegen/cpu/attention/emit_amx.h
// attention in bfloat16 with matrix registers (gemm/amx_tile.h) -> the functions of a task that differ
//
// There are up to four vectors of queries in a block, since what is done once a block of keys costs about as
// much as multiplying them with two.
//
// Scores are K Q^T as with vectors: K's rows are read as they lie, words of two numbers, and Q^T is packed. P
// V wants its keys in pairs as well, so both are turned round once a block of keys:
//
//   weights  scores [keys, queries] float32  ->  P [queries, pairs of keys]: the softmax, rounded to bfloat16
//   values   V [keys, columns]            ->  [pairs of keys, columns], a word of two keys for each column
//
// Sums of P V go onto the totals in memory. All registers have 16 rows and `step` words, so that they are set
// up once a call: a rest of keys is multiplied together with keys in front of it, whose scores come out the
// same again, and pairs of keys are filled up with zeros to whole steps.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "codegen/cpu/attention/emit_softmax.h"

namespace bolt::codegen::cpu::attention {

struct AmxAttention {
  int step;             ///< words of depth, and pairs of keys, that a register holds
  int width;            ///< queries of a block: the distance of the scores' rows
  int64_t depth;        ///< words
  int64_t value_depth;  ///< columns
  int64_t value_row;    ///< bfloat16 numbers between keys of V
  int64_t block_keys;   ///< most keys of a block

  static constexpr int kRows = 16;  ///< of a register
  int64_t columns() const { return (value_depth + kRows - 1) / kRows * kRows; }
  /// Pairs of keys in whole steps.
  int64_t pairs(int64_t keys) const { return (keys + 2 * step - 1) / (2 * step) * step; }
  /// Words between queries of P. What is stored is always 16 words: a shorter step needs room behind the
  /// last.
  int64_t weight_row() const { return pairs(block_keys) + (step < kRows ? kRows : 0); }

  // Scratch, in floats.
  int64_t spare_scores() const { return int64_t{kRows} * width; }  ///< in front of them, for keys met before
  int64_t scores() const { return 2 * pairs(block_keys) * width; }
  int64_t weights() const { return width * weight_row(); }
  int64_t values() const { return pairs(block_keys) * columns(); }

  /// void scores(const word* k, int64_t row_bytes, const word* packed_queries, float* scores, int64_t keys,
  /// int64_t key): of the block whose first key is `key`. There are at least 16 keys from key 0 on.
  llvm::Function* emit_scores(llvm::Module& module, const std::string& name, int vectors) const;
  /// void maximum(const float* scores, int64_t keys, float* maximum): the running maxima of scores without a
  /// mask
  llvm::Function* emit_maximum(llvm::Module& module, const std::string& name, int vectors) const;
  /// void weights(float* scores, int64_t keys, float* statistics, word* weights)
  llvm::Function* emit_weights(llvm::Module& module, const std::string& name, int vectors,
                               const Softmax& softmax) const;
  /// void pack(const bfloat16* v, int64_t keys, word* packed)
  llvm::Function* emit_pack_values(llvm::Module& module, const std::string& name) const;
  /// void values(const word* weights, const word* packed, int64_t keys, const float* factor, float* totals):
  /// onto `totals`, once `factor` has shrunk them; `first`: instead of them.
  llvm::Function* emit_values(llvm::Module& module, const std::string& name, int vectors, bool first) const;
};

}  // namespace bolt::codegen::cpu::attention

// codegen/cpu/attention/kernels.h
// What an attention kernel computes, as data.
//
//   S[b, i, j] = scale * sum_d Q[b, i, d] * K[b, j, d]  + mask[b, i, j]      (or -inf where a b8 mask is
//   false) P[b, i, :] = softmax(S[b, i, :]) O[b, i, c] = epilogue( sum_j P[b, i, j] * V[b, j, c] )
//
// b runs over the leading dimensions (batch, heads), each operand with strides of its own: one that is shared
// (a key head by several query heads, a mask by all heads) has stride 0. `causal`: query i sees the keys
// j <= i only. Softmax and sums are float32. How it is computed is the AttentionSchedule's (schedule.h); both
// together give code (emit_attention.h). As for the other contractions the epilogue sees each result with its
// row and column and decides where it goes; rows are the queries of all b, numbered in order.
//
// A row that sees nothing (all of its mask is -inf) is zeros, as scaled_dot_product_attention has it, or NaN,
// as a softmax written out has it.
//
// With `pairs` all operands but a b8 mask are bfloat16. Q and K hold two neighbours of d in each 32-bit word,
// as in gemm/kernels.h: their depth and strides count words. V and the mask are made float32 as they are
// read, weights are float32.
//
// The ABI is that of every kernel (codegen/cpu/jit.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "support/export.h"
#include "support/sym.h"

namespace bolt::codegen::cpu::attention {

/// One leading dimension, outermost first, and how far each operand moves along it.
struct LeadDim {
  Sym size = 1;
  Sym q, k, v, mask;
};

/// The two inner dimensions of an operand; strides in elements. `col` of V is 1.
struct InnerDims {
  int buffer = 0;
  int64_t row = 0;
  int64_t col = 1;
};

/// How far it moves with a query and with a key. A mask is as wide as there are keys, of which there may be
/// any number.
struct Mask {
  int buffer = 3;
  Sym row, col;
  bool boolean = false;
};

struct AttentionKernel {
  std::string name;
  std::vector<LeadDim> lead;
  Sym queries, keys;
  int64_t depth = 0;        ///< of queries and keys
  int64_t value_depth = 0;  ///< of values and results
  InnerDims q, k, v;
  std::optional<Mask> mask;
  double scale = 1;
  bool causal = false;
  bool pairs = false;
  bool empty_rows_nan = false;  ///< what a row without a key becomes: NaN, or zeros

  Sym rows() const;
};

BOLT_API std::string print(const AttentionKernel& kernel);
/// Throws Error(Internal) on a description that no schedule can serve.
BOLT_API void verify(const AttentionKernel& kernel);

}  // namespace bolt::codegen::cpu::attention

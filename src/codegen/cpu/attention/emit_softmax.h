// codegen/cpu/attention/emit_softmax.h
// a block of scores [keys, queries], queries being lanes -> exp((score - maximum) * scale) in place, and what
// is known of each query so far
//
// The maximum runs: a later block may raise it, and what was summed under the old one shrinks by
// exp((old - new) * scale). A row that has seen -inf only keeps 0 as its maximum, so that its weights are 0
// and not NaN. NaN stays: no maximum takes it up, but the weights and their sum do.
//
// exp: 2^t = 2^n 2^f with |f| <= 1/2, a polynomial of degree 6 (relative error 2e-9, below the rounding of
// the result), n put into the exponent. t <= 0 here, so that nothing overflows; below 2^-126 it is 0. Weights
// that are rounded to bfloat16 next have one of degree 4 (3e-6).
#pragma once

#include <llvm/IR/Module.h>

#include "codegen/cpu/gemm/emit_util.h"

namespace bolt::codegen::cpu::attention {

struct Softmax {
  int lanes;
  int width;     ///< queries of the block: the distance of the scores' rows, and of the statistics
  double scale;  ///< positive: scores are multiplied by it here
  bool several_blocks;
  bool empty_rows_nan;
  bool rounds;  ///< weights to bfloat16, once they are summed

  /// Rows of `width` numbers: the running maximum, the maximum the sums are under, the sums, and the factor:
  /// how much older sums shrink, at the end 1 / sum.
  static constexpr int kStatistics = 4;
  llvm::Value* maximum(llvm::IRBuilder<>& b, llvm::Value* statistics) const { return row(b, statistics, 0); }
  llvm::Value* factor(llvm::IRBuilder<>& b, llvm::Value* statistics) const { return row(b, statistics, 3); }

  /// x, if it is larger: NaN is not.
  static llvm::Value* larger(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* most);

  /// Before the first block.
  void emit_begin(llvm::IRBuilder<>& b, int vectors, llvm::Value* statistics) const;
  /// void softmax(float* scores, int64_t keys, float* statistics). Of one block, `factor` is 1 / sum.
  llvm::Function* emit_function(llvm::Module& module, const std::string& name, int vectors) const;
  /// After the last of several blocks: `factor` becomes 1 / sum.
  void emit_inverse(llvm::IRBuilder<>& b, int vectors, llvm::Value* statistics) const;

  // What emit_function is made of:
  /// What scores are compared with.
  std::vector<llvm::Value*> emit_most(llvm::IRBuilder<>& b, int vectors, llvm::Value* statistics) const;
  llvm::Value* weight(llvm::IRBuilder<>& b, llvm::Value* score, llvm::Value* maximum) const;
  /// The block's sums onto those of blocks before.
  void emit_end(llvm::IRBuilder<>& b, llvm::Value* statistics, const std::vector<llvm::Value*>& most,
                const std::vector<llvm::Value*>& sums) const;

 private:
  llvm::Value* row(llvm::IRBuilder<>& b, llvm::Value* statistics, int which) const {
    return gemm::float_at(b, statistics, int64_t{which} * width);
  }
  llvm::Value* inverse(llvm::IRBuilder<>& b, llvm::Value* sum) const;
};

}  // namespace bolt::codegen::cpu::attention

// codegen/cpu/attention/emit_attention.h
// AttentionKernel + AttentionSchedule + epilogue -> a kernel function in an LLVM module
//
// One work item is a task: a block of queries of one head, blocks fastest, so that neighbours share keys and
// values in the caches. schedule.h says what a task does; here it is in order:
//
//   pack        Q^T of the block -> scratch [depth, width]; lanes beyond the last query repeat it
//   for each block of keys:
//     scores    tiles of K Q^T -> scratch [keys, width]; without a mask they keep the running maximum too
//     mask      scale, mask and causal rule on the scores, and the maximum           (only where there is
//     one) softmax   scores -> exp(score - maximum) in place, sums; how much older sums shrink values tiles
//     of P V: finished by the epilogue if there is one block only, else onto the totals
//   finish      totals / sums -> epilogue                                            (several blocks only)
//
// Each is a function of its own, so that registers are allocated for its inner loop alone. Scratch is on the
// task's stack. With matrix registers (emit_amx.h) weights and values are turned round for them after the
// softmax, and totals are always finished at the end.
#pragma once

#include <llvm/IR/Module.h>

#include "codegen/cpu/attention/kernels.h"
#include "codegen/cpu/attention/schedule.h"
#include "codegen/cpu/gemm/emit_gemm.h"

namespace bolt::codegen::cpu::attention {

void emit_attention(llvm::Module& module, const AttentionKernel& kernel, const AttentionSchedule& schedule,
                    const gemm::Epilogue& epilogue, const gemm::SizeEmitter& size);

}  // namespace bolt::codegen::cpu::attention

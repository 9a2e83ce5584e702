// codegen/cpu/attention/from_plan.h
// an sdpa node of the plan -> the Attention we emit for it; and the rule which ones we take
//
// The questions and answers of gemm/from_plan.h, for attention: operands q, k, v and perhaps a mask, nothing
// packed. Taken today: float32 on machines with AVX2 or AVX-512, bfloat16 on those that multiply its pairs
// (AVX512-BF16) and where queries and keys lie in pairs; else any strides of queries and keys, values whose
// columns are neighbours, any mask, causal, grouped heads.
#pragma once

#include <optional>

#include "codegen/cpu/attention/attention.h"
#include "loops/plan.h"

namespace bolt::codegen::cpu::attention {

BOLT_API bool generates(const loops::PlannedContraction& call, const Target& target);
BOLT_API bool accepts_epilogue(const loops::PlannedContraction& call, const loops::Kernel& epilogue);
/// `step` is a Contraction whose node is an sdpa.
BOLT_API Attention attention_of(const loops::Plan& plan, const loops::Step& step, const Target& target);

}  // namespace bolt::codegen::cpu::attention

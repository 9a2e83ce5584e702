// codegen/cpu/gemm/from_plan.h
// a contraction of the plan -> the Contraction we emit for it; and the rule which ones we take
//
// The planner asks twice (loops/plan.h): `generates` for each contraction, `accepts_epilogue` for the work
// behind it. After planning, `contraction_of` describes each Contraction step: operands 0 (activations), 1
// (packed weights), then the bias, if there is one, and the epilogue's buffers. A bias is an addition at the
// beginning of the epilogue.
//
// Taken today: linear, and convolutions over one or two dimensions, with constant weights; in float32 on
// machines with AVX2 or AVX-512, also by weights that are halves (loops/narrow_weights.h); in bfloat16 on
// those that multiply its pairs (AVX512-BF16) and where K lies in pairs; depthwise convolutions of halves
// with AVX-512. Elsewhere halves have become float32 before (graph/passes/widen_halves.cpp). See `worth_it`
// in from_plan.cpp for the cost rule and what it rests on.
#pragma once

#include <optional>

#include "codegen/cpu/gemm/contraction.h"
#include "loops/plan.h"

namespace bolt::codegen::cpu::gemm {

/// Floats of the packed weights, if this call is ours.
BOLT_API std::optional<int64_t> generates(const loops::PlannedContraction& call, const Target& target);
BOLT_API bool accepts_epilogue(const loops::PlannedContraction& call, const loops::Kernel& epilogue);
/// `step` is a Contraction.
BOLT_API ScheduledContraction contraction_of(const loops::Plan& plan, const loops::Step& step,
                                             const Target& target);

}  // namespace bolt::codegen::cpu::gemm

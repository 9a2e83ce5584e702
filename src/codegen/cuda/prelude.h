// codegen/cuda/prelude.h
// What every generated CUDA text begins with: types, wide accesses, conversions, integer arithmetic that
// wraps, and reductions over a warp and a block. For sm_70 and later; needs no header.
#pragma once

#include <string_view>

namespace bolt::codegen::cuda {

std::string_view prelude();

}  // namespace bolt::codegen::cuda

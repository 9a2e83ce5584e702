// codegen/cuda/ops.h
// Values and scalar operations of a kernel as CUDA C++ expressions. What each operation means is written in
// graph/ops.def; the functions that CUDA lacks are in the prelude (prelude.h).
//
// A b8 is `bool` in registers and a byte in memory; bf16 and f16 are their 16 bits in both, and are only
// converted.
#pragma once

#include <string>
#include <vector>

#include "loops/kernel.h"

namespace bolt::codegen::cuda {

std::string value_type(DType t);
std::string memory_type(DType t);
std::string from_memory(DType t, const std::string& x);
std::string to_memory(DType t, const std::string& x);
/// Exactly this number; `ivalue` for integers and b8.
std::string constant(DType t, double value, int64_t ivalue);
std::string cast(const std::string& x, DType from, DType to);
/// `operand`: dtype of the last argument. `contract`: loops::may_contract of the expression.
std::string operation(loops::ScalarOp op, DType operand, const std::vector<std::string>& args, bool contract);

/// The prelude's name for combining two partial results, and what a reduction starts from.
std::string combiner(loops::ReduceOp op);
std::string identity(loops::ReduceOp op, DType t);

}  // namespace bolt::codegen::cuda

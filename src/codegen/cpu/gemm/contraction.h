// codegen/cpu/gemm/contraction.h
// matrix product or convolution + epilogue -> machine code; the door to this folder for the stages after it
//
//   schedule = choose_schedule(c, target)             data: tiles and blocks
//   floats   = packed_floats(c, schedule)             how large the packed weights are
//   pack_weights(c, schedule, w, strides, packed)     once per change of the weights
//   module   = compile({{c, schedule}}, target)       kernels with the ABI of codegen/cpu/jit.h
//
// Buffers of the kernel: the epilogue's in its order, and those that the contraction names (Matrix::buffer,
// ConvKernel::x and ::w). No LLVM and no torch in this header.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "codegen/cpu/gemm/kernels.h"
#include "codegen/cpu/gemm/schedule.h"
#include "codegen/cpu/jit.h"
#include "loops/kernel.h"
#include "support/export.h"

namespace bolt::codegen::cpu {
struct Job;
}

namespace bolt::codegen::cpu::gemm {

struct Contraction {
  std::variant<GemmKernel, ConvKernel> shape;
  loops::Kernel epilogue;  ///< see loops_epilogue.h
  int first_buffer = 2;    ///< where the epilogue's buffers begin: after the contraction's operands
};

struct ScheduledContraction {
  Contraction contraction;
  TileSchedule schedule;
};

/// A convolution with a 1 x 1 kernel that is a plain matrix product over all pixels; nothing when it is not.
BOLT_API std::optional<GemmKernel> as_gemm(const ConvKernel& conv);

/// Is the epilogue over the result's space: all rows in any number of dimensions, then one of columns?
BOLT_API bool fits(const Contraction& contraction);

BOLT_API std::string print(const Contraction& contraction);
/// `m_hint` stands for a symbolic number of rows. Throws Unsupported for what these kernels cannot do.
BOLT_API TileSchedule choose_schedule(const Contraction& contraction, const Target& target,
                                      int64_t m_hint = 128);
BOLT_API int64_t packed_floats(const Contraction& contraction, const TileSchedule& schedule);
/// `w`: as layers hold it, any strides: [n, k] of a linear layer, [out, in / groups, kh, kw] of a
/// convolution, kh missing where it has one spatial dimension; of the kernel's type, bfloat16 for pairs.
BOLT_API void pack_weights(const Contraction& contraction, const TileSchedule& schedule, const void* w,
                           const std::vector<int64_t>& strides, float* packed);
/// For a batch with other kernels (codegen/cpu/batch.h).
Job contraction_job(const ScheduledContraction& item);
BOLT_API std::unique_ptr<Module> compile(const std::vector<ScheduledContraction>& contractions,
                                         const Target& target);
BOLT_API Assembled assemble(const std::vector<ScheduledContraction>& contractions, const Target& target);

}  // namespace bolt::codegen::cpu::gemm

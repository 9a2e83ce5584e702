// src/codegen/cpu/gemm/contraction.cpp
// contraction + epilogue -> machine code; see contraction.h
#include "codegen/cpu/gemm/contraction.h"

#include <llvm/IR/Module.h>

#include "codegen/cpu/gemm/emit_conv.h"
#include "codegen/cpu/gemm/emit_depthwise.h"
#include "codegen/cpu/gemm/loops_epilogue.h"
#include "codegen/cpu/gemm/pack.h"
#include "codegen/cpu/machine.h"
#include "support/error.h"

namespace bolt::codegen::cpu::gemm {
namespace {

/// One compiled module and its kernels.
class ContractionModule final : public Module {
 public:
  ContractionModule(std::unique_ptr<Code> code, std::vector<CompiledKernel> kernels)
      : code_(std::move(code)), kernels_(std::move(kernels)) {
    for (CompiledKernel& kernel : kernels_)
      kernel.fn = reinterpret_cast<KernelFn>(code_->address(kernel.name));
  }
  const std::vector<CompiledKernel>& kernels() const override { return kernels_; }
  size_t code_bytes() const override { return code_->bytes(); }
  bool from_cache() const override { return false; }

 private:
  std::unique_ptr<Code> code_;
  std::vector<CompiledKernel> kernels_;
};

const ConvKernel* conv_of(const Contraction& c) { return std::get_if<ConvKernel>(&c.shape); }

/// The product that a contraction really is, when it is one.
std::optional<GemmKernel> gemm_of(const Contraction& c) {
  if (const ConvKernel* conv = conv_of(c)) return as_gemm(*conv);
  return std::get<GemmKernel>(c.shape);
}

/// The epilogue's space must be the result's: all rows, then one dimension of columns.
void check_space(const Contraction& c) {
  Sym rows, columns;
  if (const ConvKernel* conv = conv_of(c)) {
    rows = conv->images * Sym(conv->out_height() * conv->out_width());
    columns = conv->out_channels;
  } else {
    const GemmKernel& gemm = std::get<GemmKernel>(c.shape);
    rows = gemm.m;
    for (const BatchDim& dim : gemm.batch) rows *= Sym(dim.size);
    columns = gemm.n;
  }
  Sym epilogue_rows = 1;
  for (size_t d = 0; d + 1 < c.epilogue.dims.size(); ++d) epilogue_rows *= c.epilogue.dims[d].size;
  if (c.epilogue.dims.empty() || c.epilogue.dims.back().size != columns || epilogue_rows != rows)
    throw_unsupported("epilogue ", c.epilogue.name, " is not over the rows and columns of its contraction");
}

Emitted emit(llvm::Module& module, const ScheduledContraction& item, const Target& target) {
  const Contraction& c = item.contraction;
  check_space(c);
  const Epilogue epilogue = make_epilogue(c.epilogue, c.first_buffer, target);
  const SizeEmitter size = make_size_emitter(c.epilogue.symbols);
  if (const std::optional<GemmKernel> gemm = gemm_of(c))
    return emit_gemm(module, *gemm, item.schedule, epilogue, size);
  const ConvKernel& conv = *conv_of(c);
  if (conv.depthwise()) return emit_depthwise(module, conv, item.schedule.lanes, epilogue);
  return emit_conv(module, conv, item.schedule, epilogue, size);
}

}  // namespace

std::optional<GemmKernel> as_gemm(const ConvKernel& c) {
  const bool pointwise = c.kernel_h == 1 && c.kernel_w == 1 && c.stride_h == 1 && c.stride_w == 1 &&
                         c.pad_h == 0 && c.pad_w == 0 && c.groups == 1;
  const bool dense = c.x_channel == 1 && c.x_row == c.width * c.x_col &&
                     (c.images.is_const(1) || c.x_image == c.height * c.x_row);
  if (!pointwise || !dense) return std::nullopt;
  GemmKernel gemm;
  gemm.name = c.name;
  gemm.m = c.images * Sym(c.height * c.width);
  gemm.n = c.out_channels;
  gemm.k = c.in_channels;
  gemm.a = {c.x, c.x_col, 1, false};
  gemm.b = {c.w, 0, 0, true};
  return gemm;
}

std::string print(const Contraction& c) {
  const ConvKernel* conv = conv_of(c);
  return (conv ? print(*conv) : print(std::get<GemmKernel>(c.shape))) + "\n" + loops::print(c.epilogue);
}

Schedule choose_schedule(const Contraction& c, const Target& target, int64_t m_hint) {
  const MachineFacts machine = machine_facts(target);
  if (const std::optional<GemmKernel> gemm = gemm_of(c)) return schedule_gemm(*gemm, machine, m_hint);
  const ConvKernel& conv = *conv_of(c);
  if (!conv.depthwise()) return schedule_conv(conv, machine);
  if (conv.x_channel != 1) throw_unsupported("depthwise convolution of channels-first input: ", print(conv));
  Schedule schedule;
  schedule.lanes = machine.lanes;
  return schedule;
}

int64_t packed_floats(const Contraction& c, const Schedule& schedule) {
  if (const ConvKernel* conv = conv_of(c)) {
    return conv->depthwise() ? packed_depthwise_size(*conv, schedule.lanes)
                             : packed_size(*conv, schedule.width());
  }
  const GemmKernel& gemm = std::get<GemmKernel>(c.shape);
  return gemm.b.packed ? packed_size(gemm.k, gemm.n, schedule.width()) : 0;
}

void pack_weights(const Contraction& c, const Schedule& schedule, const float* w,
                  const std::vector<int64_t>& strides, float* packed) {
  if (const ConvKernel* conv = conv_of(c)) {
    BOLT_CHECK(strides.size() == 4, print(*conv), ": weights need four strides");
    const int64_t four[4] = {strides[0], strides[1], strides[2], strides[3]};
    if (conv->depthwise()) return pack_depthwise(*conv, w, four, schedule.lanes, packed);
    return pack_conv(*conv, w, four, schedule.width(), packed);
  }
  const GemmKernel& gemm = std::get<GemmKernel>(c.shape);
  BOLT_CHECK(strides.size() == 2, print(gemm), ": weights need two strides");
  pack_matrix(w, gemm.k, gemm.n, strides[0], strides[1], schedule.width(), packed);
}

std::unique_ptr<Module> compile(const std::vector<ScheduledContraction>& contractions, const Target& target) {
  const Machine machine(target);
  // The context must outlive the module, and compile_module consumes the module.
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module = machine.make_module(context, "contractions");
  std::vector<CompiledKernel> kernels;
  for (const ScheduledContraction& item : contractions) {
    const Emitted emitted = emit(*module, item, target);
    CompiledKernel kernel;
    kernel.name = std::visit([](const auto& shape) { return shape.name; }, item.contraction.shape);
    kernel.work = emitted.work;
    kernel.grain = emitted.grain;
    kernels.push_back(std::move(kernel));
  }
  return std::make_unique<ContractionModule>(compile_module(std::move(module), target), std::move(kernels));
}

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/gemm/contraction.cpp
// contraction + epilogue -> machine code; see contraction.h
#include "codegen/cpu/gemm/contraction.h"

#include "codegen/cpu/batch.h"
#include "codegen/cpu/gemm/emit_conv.h"
#include "codegen/cpu/gemm/emit_depthwise.h"
#include "codegen/cpu/gemm/loops_epilogue.h"
#include "codegen/cpu/gemm/pack.h"
#include "loops/normalise.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::codegen::cpu::gemm {
namespace {

const ConvKernel* conv_of(const Contraction& c) { return std::get_if<ConvKernel>(&c.shape); }

/// The product that a contraction really is, when it is one.
std::optional<GemmKernel> gemm_of(const Contraction& c) {
  if (const ConvKernel* conv = conv_of(c)) return as_gemm(*conv);
  return std::get<GemmKernel>(c.shape);
}

WorkItems launch(const ScheduledContraction& item) {
  const Contraction& c = item.contraction;
  if (const std::optional<GemmKernel> gemm = gemm_of(c)) return launch_gemm(*gemm, item.schedule);
  const ConvKernel& conv = *conv_of(c);
  return conv.depthwise() ? launch_depthwise(conv) : launch_conv(conv, item.schedule);
}

void emit(llvm::Module& module, const ScheduledContraction& item, const std::string& symbol,
          const Target& target) {
  const Contraction& c = item.contraction;
  const Epilogue epilogue = make_epilogue(c.epilogue, c.first_buffer, target);
  const SizeEmitter size = make_size_emitter(c.epilogue.symbols);
  if (std::optional<GemmKernel> gemm = gemm_of(c)) {
    gemm->name = symbol;
    return emit_gemm(module, *gemm, item.schedule, epilogue, size);
  }
  ConvKernel conv = *conv_of(c);
  conv.name = symbol;
  if (conv.depthwise()) return emit_depthwise(module, conv, item.schedule.lanes, epilogue);
  emit_conv(module, conv, item.schedule, epilogue, size);
}

Sym& rows_of(GemmKernel& gemm) { return gemm.m; }
Sym& rows_of(ConvKernel& conv) { return conv.images; }

/// What the code is made of: without names, and with the symbols by place.
ScheduledContraction anonymous(ScheduledContraction item) {
  loops::Kernel& epilogue = item.contraction.epilogue;
  const Syms passed = epilogue.symbols;
  epilogue = loops::with_symbols_by_place(epilogue);
  auto change = [&](auto& shape) {
    shape.name = "contraction";
    rows_of(shape) = renamed(rows_of(shape), passed, epilogue.symbols);
  };
  std::visit(change, item.contraction.shape);
  epilogue.name = "epilogue";
  epilogue.sources.clear();
  for (loops::Buffer& b : epilogue.buffers) b.name.clear();
  return item;
}

std::string key_of(const ScheduledContraction& item) {
  return print(item.contraction) + print(item.schedule) + " buffers from " +
         std::to_string(item.contraction.first_buffer) + "\n";
}

}  // namespace

std::optional<GemmKernel> as_gemm(const ConvKernel& c) {
  const bool pointwise = c.kernel_h == 1 && c.kernel_w == 1 && c.stride_h == 1 && c.stride_w == 1 &&
                         !c.padded() && c.groups == 1;
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
  gemm.pairs = c.pairs;
  gemm.weights = c.weights;
  return gemm;
}

bool fits(const Contraction& c) {
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
  return !c.epilogue.dims.empty() && c.epilogue.dims.back().size == columns && epilogue_rows == rows;
}

std::string print(const Contraction& c) {
  const ConvKernel* conv = conv_of(c);
  return (conv ? print(*conv) : print(std::get<GemmKernel>(c.shape))) + "\n" + loops::print(c.epilogue);
}

TileSchedule choose_schedule(const Contraction& c, const Target& target, int64_t m_hint) {
  const MachineFacts machine = machine_facts(target);
  if (const std::optional<GemmKernel> gemm = gemm_of(c)) return schedule_gemm(*gemm, machine, m_hint);
  const ConvKernel& conv = *conv_of(c);
  if (!conv.depthwise()) return schedule_conv(conv, machine);
  check_depthwise(conv);
  TileSchedule schedule;
  schedule.lanes = machine.lanes;
  return schedule;
}

int64_t packed_floats(const Contraction& c, const TileSchedule& schedule) {
  auto floats = [](int64_t numbers, DType dtype) { return (numbers * dtype_bytes(dtype) + 3) / 4; };
  if (const ConvKernel* conv = conv_of(c)) {
    return conv->depthwise() ? packed_depthwise_size(*conv, schedule.lanes)
                             : floats(packed_size(*conv, schedule.width()), conv->weights);
  }
  const GemmKernel& gemm = std::get<GemmKernel>(c.shape);
  return gemm.b.packed ? floats(packed_size(gemm.k, gemm.n, schedule.width()), gemm.weights) : 0;
}

void pack_weights(const Contraction& c, const TileSchedule& schedule, const void* w,
                  const std::vector<int64_t>& strides, float* packed) {
  const auto* numbers = static_cast<const float*>(w);
  const auto* halves = static_cast<const uint16_t*>(w);
  auto* packed_halves = reinterpret_cast<uint16_t*>(packed);
  if (const ConvKernel* conv = conv_of(c)) {
    BOLT_CHECK(strides.size() == 3 || strides.size() == 4, print(*conv),
               ": weights need three or four strides");
    const int64_t four[4] = {strides[0], strides[1], strides.size() == 4 ? strides[2] : 0, strides.back()};
    if (conv->pairs) return pack_conv_pairs(*conv, halves, four, schedule.width(), packed);
    if (conv->pixels != DType::F32) return pack_depthwise_halves(*conv, halves, four, schedule.lanes, packed);
    if (conv->depthwise()) return pack_depthwise(*conv, numbers, four, schedule.lanes, packed);
    if (conv->weights != DType::F32)
      return pack_conv_halves(*conv, halves, four, schedule.width(), packed_halves);
    return pack_conv(*conv, numbers, four, schedule.width(), packed);
  }
  const GemmKernel& gemm = std::get<GemmKernel>(c.shape);
  BOLT_CHECK(strides.size() == 2, print(gemm), ": weights need two strides");
  if (gemm.pairs) return pack_pairs(halves, gemm.k, gemm.n, strides[1], strides[0], schedule.width(), packed);
  if (gemm.weights != DType::F32)
    return pack_halves(halves, gemm.k, gemm.n, strides[1], strides[0], schedule.width(), packed_halves);
  pack_matrix(numbers, gemm.k, gemm.n, strides[1], strides[0], schedule.width(), packed);
}

Job contraction_job(const ScheduledContraction& item) {
  if (!fits(item.contraction))
    throw_unsupported("the epilogue is not over the contraction's rows and columns: ",
                      print(item.contraction));
  const WorkItems start = launch(item);
  Job job;
  job.name = std::visit([](const auto& shape) { return shape.name; }, item.contraction.shape);
  const ScheduledContraction made = anonymous(item);
  job.key = key_of(made);
  job.emit = [made](const LlvmMachine& machine, llvm::Module& module, const std::string& symbol) {
    emit(module, made, symbol, machine.target());
  };
  job.work = start.work;
  job.grain = start.grain;
  return job;
}

namespace {

std::vector<Job> jobs_of(const std::vector<ScheduledContraction>& contractions) {
  std::vector<Job> jobs;
  for (const ScheduledContraction& item : contractions) jobs.push_back(contraction_job(item));
  return jobs;
}

}  // namespace

std::unique_ptr<Module> compile(const std::vector<ScheduledContraction>& contractions, const Target& target) {
  return JobCompilation(jobs_of(contractions), target).finish();
}

Assembled assemble(const std::vector<ScheduledContraction>& contractions, const Target& target) {
  return assemble(jobs_of(contractions), target);
}

}  // namespace bolt::codegen::cpu::gemm

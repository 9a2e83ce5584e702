// codegen/cpu/attention/attention.cpp
// attention + epilogue -> machine code; see attention.h
#include "codegen/cpu/attention/attention.h"

#include "codegen/cpu/attention/emit_attention.h"
#include "codegen/cpu/batch.h"
#include "codegen/cpu/gemm/loops_epilogue.h"
#include "loops/normalise.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::codegen::cpu::attention {
namespace {

void emit(llvm::Module& module, const Attention& item, const std::string& symbol, const Target& target) {
  AttentionKernel kernel = item.kernel;
  kernel.name = symbol;
  emit_attention(module, kernel, item.schedule, gemm::make_epilogue(item.epilogue, item.first_buffer, target),
                 gemm::make_size_emitter(item.epilogue.symbols));
}

/// What the code is made of: without names, and with the symbols by place.
Attention anonymous(Attention item) {
  const Syms passed = item.epilogue.symbols;
  item.epilogue = loops::with_symbols_by_place(item.epilogue);
  auto change = [&](Sym& s) { s = renamed(s, passed, item.epilogue.symbols); };
  AttentionKernel& kernel = item.kernel;
  for (LeadDim& d : kernel.lead)
    for (Sym* s : {&d.size, &d.q, &d.k, &d.v, &d.mask}) change(*s);
  change(kernel.queries), change(kernel.keys);
  if (kernel.mask) change(kernel.mask->row), change(kernel.mask->col);
  kernel.name = "attention";
  item.epilogue.name = "epilogue";
  item.epilogue.sources.clear();
  for (loops::Buffer& b : item.epilogue.buffers) b.name.clear();
  return item;
}

std::string key_of(const Attention& item) {
  return print(item.kernel) + "\n" + print(item.schedule) + "\n" + loops::print(item.epilogue) +
         " buffers from " + std::to_string(item.first_buffer) + "\n";
}

}  // namespace

bool fits(const Attention& item) {
  const loops::Kernel& epilogue = item.epilogue;
  Sym rows = 1;
  for (size_t d = 0; d + 1 < epilogue.dims.size(); ++d) rows *= epilogue.dims[d].size;
  return !epilogue.dims.empty() && epilogue.dims.back().size == Sym(item.kernel.value_depth) &&
         rows == item.kernel.rows();
}

Job attention_job(const Attention& item) {
  if (!fits(item))
    throw_unsupported("the epilogue is not over the attention's rows and columns: ", print(item.kernel));
  const gemm::WorkItems start = launch(item.kernel, item.schedule);
  Job job;
  job.name = item.kernel.name;
  const Attention made = anonymous(item);
  job.key = key_of(made);
  job.emit = [made](const LlvmMachine& machine, llvm::Module& module, const std::string& symbol) {
    emit(module, made, symbol, machine.target());
  };
  job.work = start.work;
  job.grain = start.grain;
  return job;
}

std::unique_ptr<Module> compile(const std::vector<Attention>& attentions, const Target& target) {
  std::vector<Job> jobs;
  for (const Attention& item : attentions) jobs.push_back(attention_job(item));
  return JobCompilation(std::move(jobs), target).finish();
}

}  // namespace bolt::codegen::cpu::attention

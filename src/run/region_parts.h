// run/region_parts.h
// What a region keeps between calls and of one call.
#pragma once

#include "run/region.h"
#include "run/region_results.h"
#include "run/weight.h"
#include "support/error.h"

namespace bolt::run {

using loops::BufferKind;
using loops::PlanBuffer;
using loops::Step;
using loops::StepKind;
using lower::TensorOut;
using Ints = std::vector<int64_t>;

/// Gives symbols the values of one call.
struct Evaluate {
  const std::vector<lower::SizeSymbol>& symbols;
  const Ints& sizes;

  int64_t operator()(Sym s) const {
    if (s.is_const()) return s.value();
    return evaluate(s, [&](const SymNode& n) {
      for (size_t i = 0; i < symbols.size(); ++i)
        if (symbols[i].symbol.node() == &n) return sizes[i];
      throw Error(ErrorKind::Internal, "the size " + n.name + " is not known when the program runs");
    });
  }
  Ints operator()(const Syms& xs) const {
    Ints out;
    out.reserve(xs.size());
    for (Sym x : xs) out.push_back((*this)(x));
    return out;
  }
};

/// One step with everything decided that can be decided before the call.
struct Region::PreparedStep {
  const loops::Step* step;
  std::string name;  // for profilers
  const codegen::cpu::CompiledKernel* kernel = nullptr;
  LibraryFn library = nullptr;
  const lower::ExternCall* call = nullptr;
  int64_t scratch = 0;
  int shape = 0;                                   // index into Shapes::steps
  std::vector<std::pair<size_t, size_t>> numbers;  // among given(); among the region's symbols
  int learns = -1;                                 // index into the region's data_sizes_
  std::vector<int> stores;  // buffers of a kernel whose sizes are data: there may be nothing to store
  std::vector<int> makes;   // temporaries of such sizes that it is the first to need
  std::vector<int> frees;   // buffers outside the arena that nothing needs afterwards

  /// What a kernel, or a call of ATen, is given the values of.
  Syms given(const loops::Plan& plan) const {
    if (kernel) return plan.kernels[step->kind == StepKind::Kernel ? step->kernel : step->epilogue].symbols;
    Syms all;
    if (call)
      for (const record::Arg& a : call->args) all.insert(all.end(), a.syms.begin(), a.syms.end());
    return all;
  }
};

/// Sizes that one step finds out.
struct Region::DataSizes {
  struct Found {
    int result, dim;
    size_t symbol;  // among the region's
  };
  std::vector<Found> found;
  std::vector<int> buffers, results;  // what can be evaluated then; indices into Shapes
  std::vector<std::pair<const PreparedStep*, int>> steps;
  std::vector<SizeFact> facts;
};

/// The plan for one set of sizes.
struct Region::Shapes {
  struct Buffer {
    Ints sizes, strides;
    int64_t offset = 0, arena_offset = 0;
  };
  struct Step {
    int64_t work = 0, second_work = 0;
    Ints syms;
  };
  static Buffer of(const PlanBuffer& b, const Evaluate& value) {
    Buffer shape{value(b.type.sizes), value(b.type.strides), 0, 0};
    if (b.kind == BufferKind::Alias) shape.offset = value(b.offset);
    if (b.kind == BufferKind::Temp && !b.owned_by_step) shape.arena_offset = value(b.arena_offset);
    return shape;
  }
  static Step of(const PreparedStep& p, const loops::Plan& plan, const Evaluate& value) {
    Step step;
    if (p.kernel) {
      step.work = value(p.kernel->work);
      step.second_work = p.kernel->second_fn ? value(p.kernel->second_work) : 0;
    }
    step.syms = value(p.given(plan));
    return step;
  }
  static Result of(const TensorOut& o, const Evaluate& value) {
    return {value(o.sizes), value(o.strides), value(o.offset)};
  }
  Ints key;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;      // fold steps first
  std::vector<Result> results;  // the outputs, then the inputs that became views of themselves
  int64_t arena_bytes = 0;
};

/// The state of one call. `tensor` may be made lazily from `data`; `data` is always there once the buffer is
/// defined.
struct Region::Context {
  struct Slot {
    void* data = nullptr;
    at::Tensor tensor;
  };
  std::shared_ptr<const Shapes> shapes;
  std::shared_ptr<Shapes> own;  // where sizes are data: `shapes`, to be completed
  std::vector<Slot> slots;
  at::Tensor arena;
  std::vector<void*> pointers;  // scratch for kernel arguments
  std::vector<at::Tensor> operands;
  Ints values;  // of the region's symbols
  Ints syms;    // scratch for kernel arguments
  record::CallGenerators generators;
};

/// Results of the fold steps for one set of parameters.
struct Region::Folded {
  std::vector<Weight> weights;
  std::vector<std::pair<int, Context::Slot>> buffers;

  static const at::Tensor& at(const std::vector<at::Tensor>& inputs, int input) {
    return inputs[static_cast<size_t>(input)];
  }
  bool matches(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const {
    for (size_t i = 0; i < weights.size(); ++i)
      if (!weights[i].is(at(inputs, which[i]))) return false;
    return true;
  }
  /// Of the same tensors, whose contents have changed since: nobody will ask for it again.
  bool is_stale(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const {
    for (size_t i = 0; i < weights.size(); ++i)
      if (!weights[i].was(at(inputs, which[i]))) return weights[i].is_gone();
    return true;
  }
};

}  // namespace bolt::run

// program/region.cpp
#include "program/region.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "loops/in_place.h"
#include "program/background.h"
#include "program/output_memory.h"
#include "program/stats.h"
#include "program/weight.h"
#include "record/convert.h"
#include "record/recorder.h"
#include "support/error.h"
#include "support/log.h"

namespace bolt::program {
namespace {

using autograd::TensorOut;
using loops::BufferKind;
using loops::PlanBuffer;
using loops::Step;
using loops::StepKind;

using Ints = std::vector<int64_t>;

/// Gives symbols the values of one call.
struct Evaluate {
  const std::vector<autograd::SizeSymbol>& symbols;
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

constexpr size_t kMostShapes = 64;  // sets of sizes remembered
constexpr size_t kMostContexts = 2;
// Each packs the weights for itself, so they are few.
constexpr size_t kMostSpecial = 2;
constexpr int kOften = 100;

at::TensorOptions options_of(const graph::Type& t) {
  return at::TensorOptions().dtype(record::to_torch(t.dtype)).device(c10::kCPU);
}

}  // namespace

/// One step with everything decided that can be decided before the call.
struct Region::PreparedStep {
  const Step* step;
  std::string name;  // for profilers
  const codegen::cpu::CompiledKernel* kernel = nullptr;
  LibraryFn library = nullptr;
  const autograd::ExternCall* call = nullptr;
  int64_t scratch = 0;
  int shape = 0;                                   // index into Shapes::steps
  std::vector<std::pair<size_t, size_t>> numbers;  // among the kernel's symbols; among the region's
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
  struct Result {
    Ints sizes, strides;
    int64_t offset = 0;
  };
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
  std::vector<Slot> slots;
  at::Tensor arena;
  std::vector<void*> pointers;  // scratch for kernel arguments
  std::vector<at::Tensor> operands;
  Ints values;  // of the region's symbols
  Ints syms;    // scratch for kernel arguments
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

Region::Region(record::Tape tape, std::vector<record::TensorId> wanted, std::string why,
               std::unordered_map<int, at::Tensor> constants, std::vector<autograd::SizeSymbol> symbols)
    : tape_(std::move(tape)),
      wanted_(std::move(wanted)),
      replay_(true),
      visible_writes_(tape_),
      constants_(std::move(constants)),
      symbols_(std::move(symbols)) {
  facts.ops = static_cast<int>(tape_.entries.size());
  facts.why_replayed = std::move(why);
}

Region::Region(record::Tape tape, std::vector<record::TensorId> wanted, autograd::Lowered lowered,
               loops::Plan plan, codegen::cpu::PlanCode code, std::vector<autograd::SizeSymbol> symbols)
    : tape_(std::move(tape)),
      wanted_(std::move(wanted)),
      lowered_(std::move(lowered)),
      plan_(std::move(plan)),
      code_(std::move(code)),
      symbols_(std::move(symbols)) {
  prepare();
}

void check_sizes(const loops::Plan& plan) {
  for (const auto* list : {&plan.steps, &plan.fold_steps})
    for (const Step& s : *list) {
      if (s.kind != StepKind::Library) continue;
      for (const auto& [name, value] : s.node->attrs)
        if (const auto* sizes = std::get_if<Syms>(&value))
          for (Sym size : *sizes) size.value();
    }
}

std::shared_ptr<const Region::Shapes> Region::shapes_for(Ints sizes) {
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (shapes_[i]->key != sizes) continue;
      std::rotate(shapes_.begin(), shapes_.begin() + static_cast<std::ptrdiff_t>(i),
                  shapes_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return shapes_[0];
    }
  }
  auto made = std::make_shared<Shapes>();
  made->key = sizes;
  const Evaluate value{symbols_, made->key};
  for (const PlanBuffer& b : plan_.buffers) {
    Shapes::Buffer shape{value(b.type.sizes), value(b.type.strides), 0, 0};
    if (b.kind == BufferKind::Alias) shape.offset = value(b.offset);
    if (b.kind == BufferKind::Temp && !b.owned_by_step) shape.arena_offset = value(b.arena_offset);
    made->buffers.push_back(std::move(shape));
  }
  for (const auto* list : {&fold_steps_, &steps_})
    for (const PreparedStep& p : *list) {
      Shapes::Step step;
      if (p.kernel) {
        const auto& kernel = plan_.kernels[static_cast<size_t>(
            p.step->kind == StepKind::Kernel ? p.step->kernel : p.step->epilogue)];
        step.work = value(p.kernel->work);
        step.second_work = p.kernel->second_fn ? value(p.kernel->second_work) : 0;
        step.syms = value(kernel.symbols);
      }
      made->steps.push_back(std::move(step));
    }
  for (const auto* list : {&lowered_.outputs, &lowered_.reshaped})
    for (const TensorOut& o : *list)
      made->results.push_back({value(o.sizes), value(o.strides), value(o.offset)});
  made->arena_bytes = value(plan_.arena_bytes);
  std::lock_guard lock(mutex_);
  if (shapes_.size() >= kMostShapes) shapes_.pop_back();
  shapes_.insert(shapes_.begin(), made);
  return made;
}

Region::Region(record::Tape tape, std::vector<record::TensorId> wanted, Function function)
    : tape_(std::move(tape)),
      wanted_(std::move(wanted)),
      replay_(true),
      function_(std::move(function)),
      releases_gil_(false) {
  facts.ops = static_cast<int>(tape_.entries.size());
  facts.compiled = true;
}

Region::~Region() = default;

std::vector<at::Tensor> Region::run(const std::vector<at::Tensor>& inputs,
                                    const std::vector<int64_t>& numbers) {
  const Ints values = values_of(inputs, numbers);
  if (!replay_) {
    Ints sizes = shaping_values(values);
    if (auto special = specialize ? special_for(values, sizes) : nullptr)
      return special->run(inputs, numbers);
    return run_plan(inputs, values, std::move(sizes));
  }
  if (function_) return function_(inputs);
  const Evaluate value{symbols_, values};
  auto replay = [&](const std::vector<at::Tensor>& given) {
    Undo undo(*visible_writes_, given);
    auto before = [&](size_t entry, const torch::jit::Stack& arguments) { undo.before(entry, arguments); };
    return attempt_([&] { return record::replay(tape_, given, wanted_, value, before); },
                    [&] {
                      if (!saves_unseen()) return false;
                      undo.take_back();
                      return true;
                    });
  };
  if (constants_.empty()) return replay(inputs);
  // Each run gets its own copy: the user may write to what torch.tensor(...) gave.
  std::vector<at::Tensor> all = inputs;
  for (const auto& [input, value] : constants_) all[static_cast<size_t>(input)] = value.clone();
  return replay(all);
}

Ints Region::values_of(const std::vector<at::Tensor>& tape_inputs, const Ints& numbers) const {
  Ints values;
  size_t next = 0;
  for (const autograd::SizeSymbol& s : symbols_)
    values.push_back(s.input < 0 ? numbers[next++] : tape_inputs[static_cast<size_t>(s.input)].size(s.dim));
  return values;
}

std::vector<int> Region::written_inputs() const {
  std::vector<int> out;
  if (replay_) return out;
  for (const loops::PlanOutput& o : plan_.outputs)
    if (o.write_to >= 0) out.push_back(lowered_.inputs[o.write_to]);
  return out;
}

std::string Region::graph_text() const {
  if (!plan_.graph) return facts.functional_text;
  std::string text = graph::print(*plan_.graph);
  if (plan_.put_back > 0)
    text = "# layers repeat: " + std::to_string(plan_.put_back) + " more of them are run than stand here\n" +
           text;
  return text;
}

std::string Region::plan_text() const { return plan_.graph ? loops::print(plan_) : ""; }

/// What a profiler calls a step.
std::string Region::name_of(const Step& s) const {
  switch (s.kind) {
    case StepKind::Kernel: return "torchbolt::" + plan_.kernels[static_cast<size_t>(s.kernel)].name;
    case StepKind::Contraction: return "torchbolt::" + plan_.kernels[static_cast<size_t>(s.epilogue)].name;
    case StepKind::Library: return "torchbolt::" + std::string(graph::op_info(s.node->op).name);
    case StepKind::Extern:
      return "torchbolt::" + c10::toString(lowered_.calls[static_cast<size_t>(s.call)].op.operator_name());
    case StepKind::Pack: return "torchbolt::pack_weights";
    case StepKind::Copy: return "torchbolt::copy";
  }
  return "torchbolt::step";
}

void Region::prepare() {
  auto prepare_list = [&](const std::vector<Step>& from, std::vector<PreparedStep>& to) {
    for (const Step& s : from) {
      PreparedStep p;
      p.step = &s;
      p.name = name_of(s);
      if (s.kind == StepKind::Kernel || s.kind == StepKind::Contraction) {
        p.kernel = &code_.module->kernels()[s.kind == StepKind::Kernel ? s.kernel : s.epilogue];
        p.scratch = p.kernel->scratch_bytes;
      } else if (s.kind == StepKind::Library) {
        p.library = find_library(*s.node);
      } else if (s.kind == StepKind::Extern) {
        p.call = &lowered_.calls[static_cast<size_t>(s.call)];
      }
      p.shape = static_cast<int>(fold_steps_.size() + steps_.size());
      to.push_back(p);
    }
  };
  prepare_list(plan_.fold_steps, fold_steps_);
  prepare_list(plan_.steps, steps_);
  in_fold_.resize(plan_.buffers.size());
  for (const Step& s : plan_.fold_steps)
    for (int b : s.buffers) {
      while (plan_.buffers[static_cast<size_t>(b)].kind == BufferKind::Alias)
        b = plan_.buffers[static_cast<size_t>(b)].source;
      in_fold_[static_cast<size_t>(b)] = 1;
    }
  for (const Step& s : plan_.fold_steps)
    for (int i = 0; i < s.operand_count; ++i) {
      int b = s.buffers[i];
      while (plan_.buffers[b].kind == BufferKind::Alias) b = plan_.buffers[b].source;
      if (plan_.buffers[b].kind == BufferKind::Input) fold_inputs_.push_back(plan_.buffers[b].source);
    }
  std::sort(fold_inputs_.begin(), fold_inputs_.end());
  fold_inputs_.erase(std::unique(fold_inputs_.begin(), fold_inputs_.end()), fold_inputs_.end());

  find_shaping_symbols();

  facts.ops = static_cast<int>(tape_.entries.size());
  facts.compiled = true;
  facts.kernels_before_fusion = plan_.kernels_before_fusion;
  facts.from_cache = code_.module->from_cache();
  bool contracts = false;
  can_fail_ = !plan_.fold_steps.empty();
  for (const Step& s : plan_.steps) {
    can_fail_ |= loops::can_fail(plan_, s);
    contracts |= s.kind == StepKind::Contraction;
    facts.kernels +=
        s.kind == StepKind::Kernel || s.kind == StepKind::Contraction || s.kind == StepKind::Copy;
    facts.library_calls += s.kind == StepKind::Library;
    facts.extern_calls += s.kind == StepKind::Extern;
    if (s.kind == StepKind::Kernel || s.kind == StepKind::Contraction)
      facts.bytes_moved +=
          loops::traffic(plan_.kernels[s.kind == StepKind::Kernel ? s.kernel : s.epilogue]).bytes.value_or(0);
  }
  // Giving the GIL away and taking it back costs as much as a tiny kernel.
  releases_gil_ = contracts || facts.library_calls + facts.extern_calls > 0 || facts.bytes_moved > (64 << 10);
}

Ints Region::shaping_values(Ints values) const {
  for (size_t i = 0; i < values.size(); ++i)
    if (!shaping_[i]) values[i] = 0;
  return values;
}

/// The region for these sizes alone, if they came often enough for it to be made.
std::shared_ptr<Region> Region::special_for(const Ints& values, const Ints& sizes) {
  std::lock_guard lock(mutex_);
  for (const auto& [known, region] : special_)
    if (known == sizes) return region;
  if (special_.size() >= kMostSpecial) return nullptr;
  auto at = std::find_if(counts_.begin(), counts_.end(), [&](const auto& c) { return c.first == sizes; });
  if (at == counts_.end()) {
    if (counts_.size() >= kMostShapes) counts_.erase(counts_.begin());
    counts_.emplace_back(sizes, 0);
    at = counts_.end() - 1;
  }
  if (++at->second < kOften) return nullptr;
  counts_.erase(at);
  special_.emplace_back(sizes, nullptr);
  run_in_background([weak = weak_from_this(), values, sizes] {
    auto general = weak.lock();
    if (!general) return;
    auto made = general->specialize(values);
    std::lock_guard lock(general->mutex_);
    for (auto& [known, region] : general->special_)
      if (known == sizes) region = std::move(made);
  });
  return nullptr;
}

// Shapes are evaluated again where one of these has another value; the rest goes straight to the kernels.
void Region::find_shaping_symbols() {
  Syms found;
  auto add = [&](const Syms& xs) {
    for (Sym x : xs) collect_symbols(x, &found);
  };
  for (const PlanBuffer& b : plan_.buffers) {
    add(b.type.sizes);
    add(b.type.strides);
    add({b.offset, b.arena_offset});
  }
  for (const auto* list : {&lowered_.outputs, &lowered_.reshaped})
    for (const TensorOut& o : *list) {
      add(o.sizes);
      add(o.strides);
      add({o.offset});
    }
  add({plan_.arena_bytes});
  for (const auto* list : {&fold_steps_, &steps_})
    for (const PreparedStep& p : *list)
      if (p.kernel) add({p.kernel->work, p.kernel->second_work});
  for (const autograd::SizeSymbol& s : symbols_)
    shaping_.push_back(std::find(found.begin(), found.end(), s.symbol) != found.end());
  for (auto* list : {&fold_steps_, &steps_})
    for (PreparedStep& p : *list) {
      if (!p.kernel) continue;
      const auto& kernel = plan_.kernels[static_cast<size_t>(
          p.step->kind == StepKind::Kernel ? p.step->kernel : p.step->epilogue)];
      for (size_t k = 0; k < kernel.symbols.size(); ++k)
        for (size_t i = 0; i < symbols_.size(); ++i)
          if (!shaping_[i] && symbols_[i].symbol == kernel.symbols[k]) p.numbers.emplace_back(k, i);
    }
}

std::unique_ptr<Region::Context> Region::take_context(const Ints& values, Ints sizes) {
  std::unique_ptr<Context> c;
  {
    std::lock_guard lock(mutex_);
    auto same = [&](const auto& kept) { return kept->shapes->key == sizes; };
    auto at = std::find_if(contexts_.begin(), contexts_.end(), same);
    if (at == contexts_.end() && !contexts_.empty()) at = contexts_.end() - 1;
    if (at != contexts_.end()) {
      c = std::move(*at);
      contexts_.erase(at);
    }
  }
  if (!c) c = std::make_unique<Context>();
  c->values = values;
  if (c->shapes && c->shapes->key == sizes) return c;
  c->shapes = shapes_for(std::move(sizes));
  c->slots.assign(plan_.buffers.size(), {});
  make_arena(*c);
  return c;
}

void Region::make_arena(Context& c) {
  const int64_t bytes = c.shapes->arena_bytes;
  if (bytes > 0 && (!c.arena.defined() || c.arena.numel() < bytes + 64))
    c.arena = at::empty({bytes + 64}, at::TensorOptions().dtype(c10::kByte));
  char* base = bytes > 0 ? static_cast<char*>(c.arena.data_ptr()) : nullptr;
  base = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(base) + 63) & ~uintptr_t{63});
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    if (b.kind == BufferKind::Temp && !b.owned_by_step)
      c.slots[i].data = base + c.shapes->buffers[i].arena_offset;
  }
}

void Region::give_context(std::unique_ptr<Context> c) {
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    if (b.kind == BufferKind::Temp && !b.owned_by_step) continue;  // its memory and tensor stay valid
    c->slots[i] = {};
  }
  c->operands.clear();
  std::lock_guard lock(mutex_);
  if (contexts_.size() < kMostContexts) contexts_.push_back(std::move(c));
}

const at::Tensor& Region::tensor_of(Context& c, int buffer) {
  auto& slot = c.slots[buffer];
  if (slot.tensor.defined()) return slot.tensor;
  const PlanBuffer& b = plan_.buffers[buffer];
  const Shapes::Buffer& shape = c.shapes->buffers[static_cast<size_t>(buffer)];
  if (b.kind == BufferKind::Alias) {
    const at::Tensor& base = tensor_of(c, b.source);
    slot.tensor = base.as_strided(shape.sizes, shape.strides, base.storage_offset() + shape.offset);
  } else {
    BOLT_CHECK(slot.data, "buffer ", buffer, " is used before it is made");
    slot.tensor = at::from_blob(slot.data, shape.sizes, shape.strides, options_of(b.type));
  }
  slot.data = slot.tensor.data_ptr();
  return slot.tensor;
}

void Region::bind_inputs(Context& c, const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    if (b.kind == BufferKind::Input) {
      c.slots[i].tensor = inputs[b.source];
      c.slots[i].data = inputs[b.source].data_ptr();
    } else if (b.kind == BufferKind::Output) {
      const Shapes::Buffer& shape = c.shapes->buffers[i];
      c.slots[i].tensor = new_result(shape.sizes, shape.strides, record::to_torch(b.type.dtype));
      c.slots[i].data = c.slots[i].tensor.data_ptr();
    }
  }
}

void Region::run_steps(Context& c, const std::vector<PreparedStep>& steps) {
  if (!at::hasCallbacks()) {
    for (const PreparedStep& s : steps) run_step(c, s);
    return;
  }
  for (const PreparedStep& s : steps) {  // a profiler looks on
    RECORD_FUNCTION(s.name.c_str(), c10::ArrayRef<const c10::IValue>{});
    run_step(c, s);
  }
}

void Region::run_step(Context& c, const PreparedStep& p) {
  const Step& s = *p.step;
  auto pointer = [&](int b) -> void* {
    auto& slot = c.slots[b];
    return slot.data ? slot.data : tensor_of(c, b).data_ptr();
  };
  switch (s.kind) {
    case StepKind::Kernel:
    case StepKind::Contraction: {
      c.pointers.clear();
      for (int b : s.buffers) c.pointers.push_back(pointer(b));
      const Shapes::Step& shape = c.shapes->steps[static_cast<size_t>(p.shape)];
      int64_t report = 0;
      if (p.kernel->reports) c.pointers.push_back(&report);
      at::Tensor scratch;
      if (p.scratch > 0) {
        scratch = at::empty({p.scratch}, at::TensorOptions().dtype(c10::kByte));
        c.pointers.push_back(scratch.data_ptr());
      }
      const int64_t* syms = shape.syms.data();
      if (!p.numbers.empty()) {
        c.syms = shape.syms;
        for (auto [at, symbol] : p.numbers) c.syms[at] = c.values[symbol];
        syms = c.syms.data();
      }
      auto launch = [&](codegen::cpu::KernelFn fn, int64_t work, int64_t grain) {
        if (work <= grain || at::get_num_threads() == 1)
          fn(c.pointers.data(), syms, 0, work);
        else
          at::parallel_for(0, work, grain,
                           [&](int64_t begin, int64_t end) { fn(c.pointers.data(), syms, begin, end); });
      };
      launch(p.kernel->fn, shape.work, p.kernel->grain);
      if (p.kernel->second_fn) launch(p.kernel->second_fn, shape.second_work, p.kernel->second_grain);
      if (report) run_eagerly(p.name + ": an index is out of range");
      return;
    }
    case StepKind::Library:
    case StepKind::Extern: {
      c.operands.clear();
      for (int i = 0; i < s.operand_count; ++i) c.operands.push_back(tensor_of(c, s.buffers[i]));
      auto results = p.library ? p.library(*s.node, c.operands) : run_extern(*p.call, c.operands);
      for (size_t i = 0; i < results.size() && s.operand_count + i < s.buffers.size(); ++i) {
        auto& slot = c.slots[s.buffers[s.operand_count + i]];
        const PlanBuffer& b = plan_.buffers[s.buffers[s.operand_count + i]];
        if (b.owned_by_step || b.kind == BufferKind::Fold) {
          // The planner indexed this memory by the strides it expected.
          const Shapes::Buffer& shape =
              c.shapes->buffers[static_cast<size_t>(s.buffers[s.operand_count + i])];
          if (results[i].sizes() != at::IntArrayRef(shape.sizes)) {
            BOLT_CHECK(p.call, graph::op_info(s.node->op).name, " gave ", results[i].sizes(), ", not ",
                       at::IntArrayRef(shape.sizes));
            run_eagerly(p.name + ": the sizes of its result are data");
          }
          slot.tensor =
              results[i].strides() == at::IntArrayRef(shape.strides) || results[i].numel() == 0
                  ? results[i]
                  : at::empty_strided(shape.sizes, shape.strides, results[i].options()).copy_(results[i]);
          slot.data = slot.tensor.data_ptr();
        } else {
          tensor_of(c, s.buffers[s.operand_count + i]).copy_(results[i]);
        }
      }
      return;
    }
    case StepKind::Pack: {
      const auto& item = *code_.contractions[s.epilogue];
      codegen::cpu::gemm::pack_weights(item.contraction, item.schedule, pointer(s.buffers[0]),
                                       c.shapes->buffers[static_cast<size_t>(s.buffers[0])].strides,
                                       static_cast<float*>(pointer(s.buffers[1])));
      return;
    }
    case StepKind::Copy: tensor_of(c, s.buffers[1]).copy_(tensor_of(c, s.buffers[0])); return;
  }
}

std::shared_ptr<Region::Folded> Region::folded(const std::vector<at::Tensor>& inputs,
                                               const std::shared_ptr<const Shapes>& shapes) {
  {
    std::lock_guard lock(mutex_);
    for (auto& f : folds_)
      if (f->matches(inputs, fold_inputs_)) return f;
    std::erase_if(folds_, [&](const auto& f) { return f->is_stale(inputs, fold_inputs_); });
  }
  auto f = std::make_shared<Folded>();
  for (int i : fold_inputs_) f->weights.emplace_back(inputs[static_cast<size_t>(i)]);
  Context c;
  c.shapes = shapes;  // whatever they are: what is folded has known sizes
  c.slots.resize(plan_.buffers.size());
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    if (b.kind == BufferKind::Input &&
        std::binary_search(fold_inputs_.begin(), fold_inputs_.end(), b.source)) {
      c.slots[i].tensor = inputs[b.source];
      c.slots[i].data = inputs[b.source].data_ptr();
    } else if (b.kind == BufferKind::Fold || in_fold_[i]) {
      // Written by kernels; steps that own their result replace it. Also outputs without elements are read.
      if (b.owned_by_step) continue;
      const Shapes::Buffer& shape = shapes->buffers[i];
      c.slots[i].tensor = at::empty_strided(shape.sizes, shape.strides, options_of(b.type));
      c.slots[i].data = c.slots[i].tensor.data_ptr();
    }
  }
  run_steps(c, fold_steps_);
  for (size_t i = 0; i < plan_.buffers.size(); ++i)
    if (plan_.buffers[i].kind == BufferKind::Fold && plan_.buffers[i].first_step >= 0)
      f->buffers.emplace_back(static_cast<int>(i), c.slots[i]);
  std::lock_guard lock(mutex_);
  if (folds_.size() >= 8) folds_.erase(folds_.begin());  // the oldest instance
  folds_.push_back(f);
  return f;
}

std::vector<at::Tensor> Region::run_plan(const std::vector<at::Tensor>& tape_inputs, const Ints& values,
                                         Ints sizes) {
  const bool grad_mode = c10::GradMode::is_enabled();
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> inputs;
  inputs.reserve(lowered_.inputs.size());
  for (int i : lowered_.inputs) {
    auto constant = lowered_.constants.find(i);
    inputs.push_back(constant == lowered_.constants.end() ? tape_inputs[i] : constant->second);
  }
  auto c = take_context(values, std::move(sizes));
  bind_inputs(*c, inputs);
  std::shared_ptr<Folded> f;
  auto steps = [&] {
    if (!fold_steps_.empty()) {
      f = folded(inputs, c->shapes);
      for (auto& [buffer, slot] : f->buffers) c->slots[buffer] = slot;
    }
    run_steps(*c, steps_);
  };
  attempt_(steps, [] { return true; });  // write-backs come after whatever can fail (loops/in_place.h)
  // Before there are views of them: autograd takes one that is older than the last write for out of date.
  for (const loops::PlanOutput& o : plan_.outputs)
    if (o.write_to >= 0) inputs[o.write_to].unsafeGetTensorImpl()->bump_version();
  for (const TensorOut& o : lowered_.reshaped) tape_inputs[o.index].unsafeGetTensorImpl()->bump_version();
  auto out = collect(*c, tape_inputs, grad_mode);
  for (size_t i = 0; i < lowered_.reshaped.size(); ++i) {
    const at::Tensor& t = tape_inputs[lowered_.reshaped[i].index];
    const Shapes::Result& r = c->shapes->results[lowered_.outputs.size() + i];
    at::AutoDispatchBelowADInplaceOrView is_counted;
    t.as_strided_(r.sizes, r.strides, t.storage_offset() + r.offset);
  }
  give_context(std::move(c));
  return out;
}

std::vector<at::Tensor> Region::collect(Context& c, const std::vector<at::Tensor>& inputs, bool grad_mode) {
  // A view remembers the mode it was made in: with it the caller may write what autograd follows into it.
  at::AutoGradMode as_called(grad_mode);
  std::vector<at::Tensor> out(lowered_.outputs.size());
  auto view = [&](const at::Tensor& of, size_t i) {
    const Shapes::Result& r = c.shapes->results[i];
    const at::Tensor base = lowered_.outputs[i].detached && of.requires_grad() ? of.detach() : of;
    return base.as_strided(r.sizes, r.strides, base.storage_offset() + r.offset);
  };
  std::vector<int> given(plan_.buffers.size(), 0);  // a result's memory belongs to one output
  for (size_t i = 0; i < out.size(); ++i) {
    const TensorOut& o = lowered_.outputs[i];
    if (o.kind == TensorOut::Kind::Input) out[i] = inputs[o.index];
    if (o.kind == TensorOut::Kind::InputView) out[i] = view(inputs[o.index], i);
    if (o.kind != TensorOut::Kind::Fresh) continue;
    int b = plan_.outputs[o.index].buffer;
    int owner = b;
    while (plan_.buffers[owner].kind == BufferKind::Alias) owner = plan_.buffers[owner].source;
    const PlanBuffer& memory = plan_.buffers[owner];
    bool ours =
        memory.kind == BufferKind::Output || (memory.kind == BufferKind::Temp && memory.owned_by_step);
    at::Tensor t = tensor_of(c, b);
    const Shapes::Result& want = c.shapes->results[i];
    if (!ours || given[owner]++ || t.strides() != at::IntArrayRef(want.strides) ||
        t.sizes() != at::IntArrayRef(want.sizes))
      t = at::empty_strided(want.sizes, want.strides, t.options()).copy_(t);
    out[i] = std::move(t);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const TensorOut& o = lowered_.outputs[i];
    if (o.kind == TensorOut::Kind::OutputView) out[i] = view(out[o.index], i);
  }
  out.resize(wanted_.size());
  return out;
}

}  // namespace bolt::program

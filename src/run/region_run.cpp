// run/region_run.cpp
// One call of a region: memory, steps, results.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>

#include "record/convert.h"
#include "record/recorder.h"
#include "run/handed_out.h"
#include "run/output_memory.h"
#include "run/region_parts.h"

namespace bolt::run {
namespace {

constexpr size_t kMostContexts = 2;

at::TensorOptions options_of(const graph::Type& t) {
  return at::TensorOptions().dtype(record::to_torch(t.dtype)).device(c10::kCPU);
}

/// Without the sizes: calls that fail alike are counted as one.
std::string unfit(const SizeFact& fact) {
  return " found a size that the program was not made for: it holds where " + str(fact) +
         (fact.where.empty() ? "" : " (" + fact.where + ")");
}

/// The mode that a tensor is made in stays with it.
at::Tensor made_in(std::optional<bool> inference_mode, at::Tensor t) {
  if (!inference_mode || *inference_mode == t.is_inference()) return t;
  const c10::InferenceMode mode(*inference_mode);
  return at::empty({0}, t.options()).set_(t.storage(), t.storage_offset(), t.sizes(), t.strides());
}

}  // namespace

std::vector<at::Tensor> Region::run(const std::vector<at::Tensor>& inputs,
                                    const std::vector<int64_t>& numbers, record::CallGenerators generators) {
  // The casts are among what was recorded; what was run without autocast is not to be cast now.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Ints values = values_of(inputs, numbers);
  if (!replay_) {
    Ints sizes = shaping_values(values);
    if (auto special = specialize ? special_for(values, sizes) : nullptr)
      return special->run(inputs, numbers, std::move(generators));
    return run_plan(inputs, values, std::move(sizes), std::move(generators));
  }
  if (function_) return function_(inputs, values, std::move(generators));
  const Evaluate value{symbols_, values};
  auto replay = [&](const std::vector<at::Tensor>& given) {
    Undo undo(*visible_writes_, given);
    auto before = [&](size_t entry, const torch::jit::Stack& arguments) { undo.before(entry, arguments); };
    auto out = attempt_(
        generators, [&] { return record::replay(tape_, given, wanted_, value, before, generators); },
        [&] {
          if (!saves_unseen()) return false;
          undo.take_back();
          return true;
        });
    for (size_t input : visible_writes_->inputs) note_handed_out(given[input]);
    return out;
  };
  if (constants_.empty()) return replay(inputs);
  // Each run gets its own copy: the user may write to what torch.tensor(...) gave.
  std::vector<at::Tensor> all = inputs;
  for (const auto& [input, value] : constants_) all[static_cast<size_t>(input)] = value.clone();
  return replay(all);
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
  if (!data_sizes_.empty()) c->shapes = c->own = std::make_shared<Shapes>(*c->shapes);
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
    if (b.kind == BufferKind::Temp && !b.owned_by_step && !waits(i))
      c.slots[i].data = base + c.shapes->buffers[i].arena_offset;
  }
}

void Region::give_context(std::unique_ptr<Context> c) {
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    if (b.kind == BufferKind::Temp && !b.owned_by_step && !waits(i))
      continue;  // its memory and tensor stay valid
    c->slots[i] = {};
  }
  c->operands.clear();
  c->generators = {};
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
    } else if (b.kind == BufferKind::Output && !waits(i)) {
      make_output(c, i);
    }
  }
}

void Region::make_output(Context& c, size_t buffer) {
  const Shapes::Buffer& shape = c.shapes->buffers[buffer];
  c.slots[buffer].tensor =
      new_result(shape.sizes, shape.strides, record::to_torch(plan_.buffers[buffer].type.dtype));
  c.slots[buffer].data = c.slots[buffer].tensor.data_ptr();
}

/// A step has found sizes out that nobody knew before: what rests on them is evaluated and gets its memory.
void Region::learn_sizes(Context& c, const PreparedStep& p, const std::vector<at::Tensor>& results) {
  const DataSizes& here = data_sizes_[static_cast<size_t>(p.learns)];
  for (const auto& f : here.found) c.values[f.symbol] = results[static_cast<size_t>(f.result)].size(f.dim);
  const Evaluate value{symbols_, c.values};
  for (const SizeFact& f : here.facts)
    if (!holds(value(f.a), f.relation, value(f.b))) throw RunEagerly{p.name + unfit(f), true};
  // Strides of what has no elements are as torch has them: as if there were one.
  Ints ones = c.values;
  for (size_t i = 0; i < ones.size(); ++i)
    if (symbols_[i].input == lower::SizeSymbol::kData) ones[i] = std::max<int64_t>(ones[i], 1);
  const Evaluate stride{symbols_, ones};
  for (int b : here.buffers) {
    c.own->buffers[static_cast<size_t>(b)] = Shapes::of(plan_.buffers[b], value);
    c.own->buffers[static_cast<size_t>(b)].strides = stride(plan_.buffers[b].type.strides);
  }
  for (auto [step, shape] : here.steps)
    c.own->steps[static_cast<size_t>(shape)] = Shapes::of(*step, plan_, value);
  for (int r : here.results) {
    const size_t outputs = lowered_.outputs.size(), i = static_cast<size_t>(r);
    const TensorOut& out = i < outputs ? lowered_.outputs[i] : lowered_.reshaped[i - outputs];
    c.own->results[i] = Shapes::of(out, value);
    c.own->results[i].strides = stride(out.strides);
  }
  for (int b : here.buffers)
    if (plan_.buffers[static_cast<size_t>(b)].kind == BufferKind::Output)
      make_output(c, static_cast<size_t>(b));
}

/// Memory of its own, or that of the one it takes the place of.
void Region::make_waiting(Context& c, int buffer) {
  auto& slot = c.slots[static_cast<size_t>(buffer)];
  const PlanBuffer& b = plan_.buffers[static_cast<size_t>(buffer)];
  const Shapes::Buffer& shape = c.shapes->buffers[static_cast<size_t>(buffer)];
  void* place = b.over >= 0 ? c.slots[static_cast<size_t>(b.over)].data : nullptr;
  slot.tensor = place ? at::from_blob(place, shape.sizes, shape.strides, options_of(b.type))
                      : at::empty_strided(shape.sizes, shape.strides, options_of(b.type));
  slot.data = slot.tensor.data_ptr();
}

void Region::run_steps(Context& c, const std::vector<PreparedStep>& steps) {
  auto run = [&](const PreparedStep& s) {
    for (int b : s.makes) make_waiting(c, b);
    run_step(c, s);
    for (int b : s.frees) c.slots[static_cast<size_t>(b)] = {};
  };
  if (!at::hasCallbacks()) {
    for (const PreparedStep& s : steps) run(s);
    return;
  }
  for (const PreparedStep& s : steps) {  // a profiler looks on
    RECORD_FUNCTION(s.name.c_str(), c10::ArrayRef<const c10::IValue>{});
    run(s);
  }
}

void* Region::pointer_of(Context& c, int buffer) {
  auto& slot = c.slots[buffer];
  return slot.data ? slot.data : tensor_of(c, buffer).data_ptr();
}

/// What a kernel, or a call of ATen, is given in this call. Valid until the next step.
const std::vector<int64_t>& Region::numbers_of(Context& c, const PreparedStep& p) {
  const Ints& known = c.shapes->steps[static_cast<size_t>(p.shape)].syms;
  if (p.numbers.empty()) return known;
  c.syms = known;
  for (auto [at, symbol] : p.numbers) c.syms[at] = c.values[symbol];
  return c.syms;
}

void Region::run_kernel(Context& c, const PreparedStep& p) {
  auto nothing = [&](int b) {
    const Ints& sizes = c.shapes->buffers[static_cast<size_t>(b)].sizes;
    return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  };
  if (!p.stores.empty() && std::all_of(p.stores.begin(), p.stores.end(), nothing)) return;
  c.pointers.clear();
  for (int b : p.step->buffers) c.pointers.push_back(pointer_of(c, b));
  const Shapes::Step& shape = c.shapes->steps[static_cast<size_t>(p.shape)];
  int64_t report = 0;
  if (p.kernel->reports) c.pointers.push_back(&report);
  at::Tensor scratch;
  if (p.scratch > 0) {
    scratch = at::empty({p.scratch}, at::TensorOptions().dtype(c10::kByte));
    c.pointers.push_back(scratch.data_ptr());
  }
  const int64_t* syms = numbers_of(c, p).data();
  auto launch = [&](codegen::cpu::KernelFn fn, int64_t work, int64_t grain) {
    if (work <= grain || at::get_num_threads() == 1)
      fn(c.pointers.data(), syms, 0, work);
    else
      at::parallel_for(0, work, grain,
                       [&](int64_t begin, int64_t end) { fn(c.pointers.data(), syms, begin, end); });
  };
  launch(p.kernel->fn, shape.work, p.kernel->grain);
  if (p.kernel->second_fn) launch(p.kernel->second_fn, shape.second_work, p.kernel->second_grain);
  if (report) throw RunEagerly{p.name + ": an index is out of range"};
}

/// A result of a call is the buffer itself, where that has no memory of its own, or is copied into it.
void Region::take_result(Context& c, const PreparedStep& p, int buffer, const at::Tensor& result) {
  const PlanBuffer& b = plan_.buffers[buffer];
  if (!b.owned_by_step && b.kind != BufferKind::Fold) {
    tensor_of(c, buffer).copy_(result);
    return;
  }
  // The planner indexed this memory by the strides it expected.
  const Shapes::Buffer& shape = c.shapes->buffers[static_cast<size_t>(buffer)];
  if (result.sizes() != at::IntArrayRef(shape.sizes)) {
    BOLT_CHECK(p.call, graph::op_info(p.step->node->op).name, " gave ", result.sizes(), ", not ",
               at::IntArrayRef(shape.sizes));
    if (symbols_.empty() || p.learns >= 0)
      throw RunEagerly{p.name + ": the sizes of its result are data", p.learns >= 0};
    throw RunEagerly{p.name + ": the sizes of its result were guessed wrong", false,
                     c10::toString(p.call->op.operator_name())};
  }
  auto& slot = c.slots[buffer];
  slot.tensor = result.strides() == at::IntArrayRef(shape.strides) || result.numel() == 0
                    ? result
                    : at::empty_strided(shape.sizes, shape.strides, result.options()).copy_(result);
  slot.data = slot.tensor.data_ptr();
}

/// An operator of the user's may give other tensors for other data.
void Region::check_kind(const PreparedStep& p, const std::vector<at::Tensor>& results) const {
  bool same = results.size() == p.call->gives;
  for (size_t i = 0; same && i < results.size(); ++i) {
    const int buffer = p.step->buffers[static_cast<size_t>(p.step->operand_count) + i];
    same =
        results[i].scalar_type() == record::to_torch(plan_.buffers[static_cast<size_t>(buffer)].type.dtype);
  }
  if (!same) throw RunEagerly{p.name + " gave another result than in the recorded run", true};
}

void Region::run_call(Context& c, const PreparedStep& p) {
  const Step& s = *p.step;
  c.operands.clear();
  for (int i = 0; i < s.operand_count; ++i) c.operands.push_back(tensor_of(c, s.buffers[i]));
  const auto results = p.library ? p.library(*s.node, c.operands)
                                 : run_extern(*p.call, c.operands, numbers_of(c, p), c.generators);
  if (p.call) check_kind(p, results);
  if (p.learns >= 0) learn_sizes(c, p, results);
  for (size_t i = 0; i < results.size() && s.operand_count + i < s.buffers.size(); ++i)
    take_result(c, p, s.buffers[s.operand_count + i], results[i]);
}

void Region::pack(Context& c, const Step& s) {
  const auto& item = *code_.contractions[s.epilogue];
  codegen::cpu::gemm::pack_weights(item.contraction, item.schedule, pointer_of(c, s.buffers[0]),
                                   c.shapes->buffers[static_cast<size_t>(s.buffers[0])].strides,
                                   static_cast<float*>(pointer_of(c, s.buffers[1])));
}

void Region::run_step(Context& c, const PreparedStep& p) {
  const Step& s = *p.step;
  switch (s.kind) {
    case StepKind::Kernel:
    case StepKind::Contraction: return run_kernel(c, p);
    case StepKind::Library:
    case StepKind::Extern: return run_call(c, p);
    case StepKind::Pack: return pack(c, s);
    case StepKind::Copy: {
      const at::AutoDispatchBelowADInplaceOrView is_announced;  // announce_write: of an input
      tensor_of(c, s.buffers[1]).copy_(tensor_of(c, s.buffers[0]));
      return;
    }
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
                                         Ints sizes, record::CallGenerators generators) {
  const bool grad_mode = c10::GradMode::is_enabled();
  at::NoGradGuard no_grad;
  const std::vector<at::Tensor> inputs = graph_inputs(lowered_, tape_inputs);
  auto c = take_context(values, std::move(sizes));
  c->generators = generators;
  bind_inputs(*c, inputs);
  std::shared_ptr<Folded> f;
  auto steps = [&] {
    if (!fold_steps_.empty()) {
      f = folded(inputs, c->shapes);
      for (auto& [buffer, slot] : f->buffers) c->slots[buffer] = slot;
    }
    run_steps(*c, steps_);
  };
  // Write-backs come after whatever can fail (loops/in_place.h).
  attempt_(generators, steps, [] { return true; });
  // Before there are views of them: autograd takes one that is older than the last write for out of date.
  for (const loops::PlanOutput& o : plan_.outputs)
    if (o.write_to >= 0) announce_write(lowered_, inputs, o.write_to);
  announce_reshaped(lowered_, tape_inputs);
  auto out = collect(*c, tape_inputs, grad_mode);
  reshape(lowered_, c->shapes->results, tape_inputs);
  give_context(std::move(c));
  return out;
}

std::vector<at::Tensor> Region::collect(Context& c, const std::vector<at::Tensor>& inputs, bool grad_mode) {
  std::vector<at::Tensor> out(lowered_.outputs.size());
  std::vector<int> given(plan_.buffers.size(), 0);  // a result's memory belongs to one output
  for (size_t i = 0; i < out.size(); ++i) {
    const TensorOut& o = lowered_.outputs[i];
    if (o.kind != TensorOut::Kind::Fresh) continue;
    int b = plan_.outputs[o.index].buffer;
    int owner = b;
    while (plan_.buffers[owner].kind == BufferKind::Alias) owner = plan_.buffers[owner].source;
    const PlanBuffer& memory = plan_.buffers[owner];
    bool ours =
        memory.kind == BufferKind::Output || (memory.kind == BufferKind::Temp && memory.owned_by_step);
    at::Tensor t = tensor_of(c, b);
    const Result& want = c.shapes->results[i];
    if (!ours || given[owner]++ || t.strides() != at::IntArrayRef(want.strides) ||
        t.sizes() != at::IntArrayRef(want.sizes))
      t = at::empty_strided(want.sizes, want.strides, t.options()).copy_(t);
    out[i] = made_in(i < modes_.size() ? modes_[i] : std::nullopt, std::move(t));
  }
  give_views(lowered_, c.shapes->results, inputs, grad_mode, out);
  out.resize(wanted_.size());
  return out;
}

}  // namespace bolt::run

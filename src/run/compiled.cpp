// run/compiled.cpp
#include "run/compiled.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "loops/in_place.h"
#include "support/background.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::run {

using loops::StepKind;

namespace {

constexpr size_t kMostCounted = 64;  // sets of sizes whose calls are counted
// Each packs the weights for itself, so they are few.
constexpr size_t kMostSpecial = 2;
constexpr int kOften = 100;
// Giving the GIL away and taking it back costs as much as a tiny kernel.
constexpr int64_t kFewBytes = 64 << 10;

/// From there on no call is given to eager, which would need the inputs: kernels and operators of ATen's can
/// only raise what eager's would raise. Operators of the user's, and those that find sizes out, may give
/// something else than they gave.
size_t first_final_step(const Prepared& p) {
  size_t first = 0;
  for (size_t i = p.steps.size(); i > 0; --i) {
    const PreparedStep& s = p.steps[i - 1];
    if (!s.call ||
        (s.learns < 0 && !record::facts_of(s.call->op).finds_sizes && record::is_atens(s.call->op)))
      continue;
    first = i;
    break;
  }
  while (first < p.steps.size() && first > 0 && p.steps[first].step->list >= 0 &&
         p.steps[first].step->list == p.steps[first - 1].step->list)
    ++first;
  return first;
}

/// Of all inputs that nothing but the steps looks at. False: they must stay, since some are written.
bool let_go(const Prepared& p, std::vector<at::Tensor>& tape_inputs, std::vector<at::Tensor>& inputs) {
  using Kind = lower::TensorOut::Kind;
  const bool writes = std::ranges::any_of(p.plan.outputs, [](const auto& o) { return o.write_to >= 0; });
  if (!p.lowered.reshaped.empty() || writes) return false;
  std::vector<bool> needed(tape_inputs.size(), false);
  for (const lower::TensorOut& o : p.lowered.outputs)
    if (o.kind == Kind::Input || o.kind == Kind::InputView) needed[o.index] = true;
  for (size_t i = 0; i < tape_inputs.size(); ++i)
    if (!needed[i]) tape_inputs[i].reset();
  inputs.clear();
  return true;
}

}  // namespace

Compiled::Compiled(record::Tape tape, std::vector<record::TensorId> wanted, lower::Lowered lowered,
                   loops::Plan plan, device::PlanCode code, SymbolTable symbols)
    : Runnable(std::move(tape), std::move(wanted), symbols),
      p_(std::move(lowered), std::move(plan), std::move(code), std::move(symbols)),
      final_steps_(first_final_step(p_)) {
  for (const record::TensorId id : wanted_) {
    const int producer = tape_.tensors.empty() ? -1 : tape_.tensors[id].producer;
    modes_.push_back(producer < 0 ? std::nullopt : std::optional(tape_.entries[producer].inference_mode));
  }
  count_steps();
}

void Compiled::count_steps() {
  const loops::Plan& plan = p_.plan;
  facts.compiled = true;
  facts.kernels_before_fusion = plan.kernels_before_fusion;
  std::vector<std::optional<int64_t>> moves(plan.kernels.size());  // by kernel: equal layers share one
  bool contracts = false;
  can_fail_ = !plan.fold_steps.empty();
  for (const loops::Step& s : plan.steps) {
    can_fail_ |= loops::can_fail(plan, s);
    contracts |= s.kind == StepKind::Contraction;
    facts.kernels += loops::kernel_of(s) >= 0 || s.kind == StepKind::Copy;
    facts.library_calls += s.kind == StepKind::Library;
    facts.extern_calls += s.kind == StepKind::Extern;
    if (loops::kernel_of(s) < 0) continue;
    const auto kernel = static_cast<size_t>(loops::kernel_of(s));
    if (!moves[kernel]) moves[kernel] = loops::traffic(plan.kernels[kernel]).bytes.value_or(0);
    facts.bytes_moved += *moves[kernel];
  }
  releases_gil_ = contracts || facts.library_calls + facts.extern_calls > 0 || facts.bytes_moved > kFewBytes;
}

void Compiled::finish_code(const std::string& name) {
  facts.from_cache = p_.code.finish();
  auto& stats = Stats::get();
  ++(facts.from_cache ? stats.cache_hits : stats.cache_misses);
  log("cache", name + (facts.from_cache ? ": found in the disk cache" : ": compiled"));
}

std::vector<int> Compiled::written_inputs() const {
  std::vector<int> out;
  for (const loops::PlanOutput& o : p_.plan.outputs)
    if (o.write_to >= 0) out.push_back(p_.lowered.inputs[o.write_to]);
  return out;
}

std::vector<int> Compiled::weights() const {
  std::vector<int> out;
  for (const int i : p_.fold_inputs) {
    const int input = p_.lowered.inputs[i];
    if (!p_.lowered.constants.contains(input)) out.push_back(input);
  }
  return out;
}

void Compiled::prepare(const std::vector<at::Tensor>& inputs) {
  if (p_.fold_steps.empty()) return;
  const at::NoGradGuard no_grad;
  Ints sizes;  // what is folded has the same ones for all
  for (const SymbolRow& s : symbols_) sizes.push_back(s.hint);
  folds_.of(p_, graph_inputs(p_.lowered, inputs), p_.shapes(p_.shaping_values(std::move(sizes))));
}

Runnable::Texts Compiled::texts() const {
  std::string text = p_.plan.graph_text.empty() ? graph::print(*p_.plan.graph) : p_.plan.graph_text;
  if (p_.plan.put_back > 0)
    text = "# layers repeat: " + std::to_string(p_.plan.put_back) +
           " more of them are run than stand here\n" + text;
  return {std::move(text), loops::print(p_.plan)};
}

std::vector<at::Tensor> Compiled::call(const std::vector<at::Tensor>& inputs, const Ints& values,
                                       record::CallGenerators generators) {
  if (auto trained = unfolded ? for_changing_parameters(inputs) : nullptr)
    return trained->call(inputs, values, std::move(generators));
  const Ints sizes = p_.shaping_values(values);
  if (auto special = specialize ? special_for(values, sizes) : nullptr) {
    Ints numbers;
    for (size_t i = 0; i < values.size(); ++i)
      if (symbols_[i].from == SymbolRow::From::number) numbers.push_back(values[i]);
    return special->run(inputs, numbers, std::move(generators));
  }
  return run_plan(inputs, values, sizes, std::move(generators), {});
}

std::vector<at::Tensor> Compiled::run_tied(const std::vector<at::Tensor>& inputs, const Ints& values,
                                           record::CallGenerators generators, const Tie& tie) {
  return run_plan(inputs, values, p_.shaping_values(values), std::move(generators), {.tie = &tie});
}

std::vector<at::Tensor> Compiled::run_last(std::vector<at::Tensor>& inputs, const Ints& values) {
  return run_plan(inputs, values, p_.shaping_values(values), {}, {.let_go = &inputs});
}

/// `gone`: of inputs, some of which are not there any more.
void Compiled::run_steps(Execution& execution, std::vector<at::Tensor>& inputs, Way way, bool& gone) const {
  const std::span<const PreparedStep> steps = p_.steps;
  if (!way.let_go || steps_are_timed()) return execution.run(steps);
  execution.run(steps.first(final_steps_));
  gone = let_go(p_, *way.let_go, inputs);
  try {
    execution.run(steps.subspan(final_steps_));
  } catch (const RunEagerly& eagerly) {
    TORCH_CHECK_INDEX(!gone, "torchbolt: in a backward pass, ", eagerly.why.text(),
                      ". It was not in the forward pass: what was saved has been written to since.");
    throw;
  }
}

std::vector<at::Tensor> Compiled::run_plan(const std::vector<at::Tensor>& tape_inputs, const Ints& values,
                                           const Ints& sizes, record::CallGenerators generators, Way way) {
  const bool grad_mode = c10::GradMode::is_enabled();
  at::NoGradGuard no_grad;
  const lower::Lowered& lowered = p_.lowered;
  std::vector<at::Tensor> inputs = graph_inputs(lowered, tape_inputs);
  std::shared_ptr<const Shapes> shapes;
  std::unique_ptr<Execution> execution;
  std::optional<std::vector<at::Tensor>> repeated;
  std::shared_ptr<const FoldedBuffers> folded;
  bool gone = false;
  auto fold = [&] {
    if (!p_.fold_steps.empty() && !folded) folded = folds_.of(p_, inputs, shapes);
  };
  if (recordings_) {
    shapes = kept_.shapes_for(sizes);
    attempt_(generators, fold, [] { return true; });
    repeated = repeat(inputs, values, shapes, folded, generators);
  }
  if (repeated) {
    if (way.let_go) let_go(p_, *way.let_go, inputs);
  } else {
    execution = kept_.take(sizes);
    execution->begin(values, generators);  // what kernels of earlier calls reported raises here
    auto steps = [&] {
      if (!execution->is_for(sizes)) execution->take_shapes(kept_.shapes_for(sizes));
      shapes = execution->memory.shapes();
      execution->memory.make_arenas();
      execution->bind(inputs);
      fold();
      if (folded) execution->use(*folded);
      run_steps(*execution, inputs, way, gone);
    };
    // Write-backs come after whatever can fail (loops/in_place.h), and after all memory was got.
    attempt_(generators, steps, [&] { return !gone && !execution->has_written(); });
  }
  // Before there are views of them: autograd takes one that is older than the last write for out of date.
  for (const loops::PlanOutput& o : p_.plan.outputs)
    if (o.write_to >= 0) announce_write(lowered, inputs, o.write_to);
  announce_reshaped(lowered, tape_inputs);
  auto out = repeated ? std::move(*repeated) : execution->collect(modes_);
  const std::vector<Result>& results = execution ? execution->memory.shapes()->results : shapes->results;
  if (way.tie && *way.tie) (*way.tie)(out);
  give_views(lowered, results, tape_inputs, grad_mode, out);
  out.resize(wanted_.size());
  reshape(lowered, results, tape_inputs);
  if (execution) {
    execution->end();
    kept_.give_back(std::move(execution));
  }
  return out;
}

// ---- launched at once ----

void Compiled::launch_at_once(const std::string& name) {
  name_ = name;
  auto made = std::make_unique<Recordings>(p_, name);
  facts.why_no_graph = made->obstacle();
  if (made->obstacle().empty()) recordings_ = std::move(made);
}

std::optional<std::vector<at::Tensor>> Compiled::repeat(const std::vector<at::Tensor>& inputs,
                                                        const Ints& values,
                                                        const std::shared_ptr<const Shapes>& shapes,
                                                        const std::shared_ptr<const FoldedBuffers>& folded,
                                                        const record::CallGenerators& generators) {
  return recordings_->run({inputs, values, shapes, folded, modes_, generators, attempt_},
                          [&] { return kept_.take(shapes->key); });
}

// ---- other programs for the same region ----

/// What a program for the same region that is made later does alike.
void Compiled::take_over(const Compiled& from) {
  modes_ = from.modes_;
  if (!from.name_.empty()) launch_at_once(from.name_);
}

/// The region that folds nothing, while that is better.
std::shared_ptr<Compiled> Compiled::for_changing_parameters(const std::vector<at::Tensor>& tape_inputs) {
  if (p_.fold_steps.empty() || !folds_.were_short_lived()) return nullptr;
  const std::vector<at::Tensor> inputs = graph_inputs(p_.lowered, tape_inputs);
  std::lock_guard lock(mutex_);
  if (!folds_.keep_changing(p_.fold_inputs, inputs, trained_ != nullptr)) return nullptr;
  if (wants_unfolded_) make_unfolded();
  return trained_;
}

void Compiled::make_unfolded() {
  wants_unfolded_ = false;
  run_in_background([weak = weak_from_this()] {
    auto folding = weak.lock();
    if (!folding) return;
    auto made = folding->unfolded();
    if (made) made->take_over(*folding);
    std::lock_guard lock(folding->mutex_);
    folding->trained_ = std::move(made);
  });
}

/// The region for these sizes alone, if they came often enough for it to be made.
std::shared_ptr<Compiled> Compiled::special_for(const Ints& values, const Ints& sizes) {
  std::lock_guard lock(mutex_);
  for (const auto& [known, region] : special_)
    if (known == sizes) return region;
  if (special_.size() >= kMostSpecial) return nullptr;
  auto at = std::find_if(counts_.begin(), counts_.end(), [&](const auto& c) { return c.first == sizes; });
  if (at == counts_.end()) {
    if (counts_.size() >= kMostCounted) counts_.erase(counts_.begin());
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
    if (made) made->take_over(*general);
    std::lock_guard lock(general->mutex_);
    for (auto& [known, region] : general->special_)
      if (known == sizes) region = std::move(made);
  });
  return nullptr;
}

}  // namespace bolt::run

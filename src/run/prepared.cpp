// run/prepared.cpp
#include "run/prepared.h"

#include <algorithm>

#include "graph/device_facts.h"
#include "loops/cost.h"
#include "loops/in_place.h"
#include "run/products.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::run {

using loops::BufferKind;
using loops::PlanBuffer;
using loops::Step;
using loops::StepKind;
using lower::TensorOut;

namespace {

Syms all_of(const PlanBuffer& b) {
  Syms all = b.type.sizes;
  all.insert(all.end(), b.type.strides.begin(), b.type.strides.end());
  all.push_back(b.offset);
  return all;
}

Syms all_of(const TensorOut& o) {
  Syms all = o.sizes;
  all.insert(all.end(), o.strides.begin(), o.strides.end());
  all.push_back(o.offset);
  return all;
}

/// Buffers that the kernel of a step stores to.
std::vector<int> stores_of(const loops::Plan& plan, const PreparedStep& p) {
  std::vector<int> stores;
  if (p.kernel < 0) return stores;
  const size_t operands =
      p.step->kind == StepKind::Contraction ? static_cast<size_t>(p.step->operand_count) : 0;
  const auto& buffers = plan.kernels[p.kernel].buffers;
  for (size_t b = operands; b < p.step->buffers.size(); ++b)
    if (buffers[b - operands].role != loops::BufferRole::In) stores.push_back(p.step->buffers[b]);
  return stores;
}

}  // namespace

void check_sizes(const loops::Plan& plan) {
  for (const auto* list : {&plan.steps, &plan.fold_steps})
    for (const Step& s : *list) {
      if (s.kind != StepKind::Library) continue;
      for (const auto& [name, value] : s.node->attrs)
        if (const auto* sizes = std::get_if<Syms>(&value))
          for (Sym size : *sizes) size.value();
    }
}

// ---- Shapes ----

Syms PreparedStep::given(const loops::Plan& plan) const {
  if (kernel >= 0) return plan.kernels[kernel].symbols;
  Syms all;
  if (call)
    for (const record::Arg& a : call->args) all.insert(all.end(), a.syms.begin(), a.syms.end());
  return all;
}

Shapes::OfBuffer Shapes::of(const PlanBuffer& b, const Evaluate& value) {
  OfBuffer shape{value(b.type.sizes), value(b.type.strides), 0, 0};
  if (b.kind == BufferKind::Alias) shape.offset = value(b.offset);
  if (b.kind == BufferKind::Temp && !b.owned_by_step) shape.arena_offset = value(b.arena_offset);
  return shape;
}

Shapes::OfStep Shapes::of(const PreparedStep& p, const loops::Plan& plan, const Evaluate& value) {
  return {value(p.extents()), value(p.given(plan)), std::nullopt};
}

Result Shapes::of(const TensorOut& o, const Evaluate& value) {
  return {value(o.sizes), value(o.strides), value(o.offset)};
}

std::shared_ptr<Shapes> Prepared::shapes(Ints sizes) const {
  auto made = std::make_shared<Shapes>();
  made->key = std::move(sizes);
  const Evaluate value{symbols, made->key};
  for (const PlanBuffer& b : plan.buffers) made->buffers.push_back(Shapes::of(b, value));
  for (const auto* list : {&fold_steps, &steps})
    for (const PreparedStep& p : *list) {
      made->steps.push_back(Shapes::of(p, plan, value));
      made->steps.back().product = product_of(p, *made);
    }
  for (const auto* list : {&lowered.outputs, &lowered.reshaped})
    for (const TensorOut& o : *list) made->results.push_back(Shapes::of(o, value));
  for (const loops::Arena& a : plan.arenas) made->arena_bytes.push_back(value(a.bytes));
  return made;
}

std::optional<device::driver::Multiplication> Prepared::product_of(const PreparedStep& p,
                                                                   const Shapes& shapes) const {
  const auto later = [&](int b) { return waits(static_cast<size_t>(b)); };
  if (!p.library || std::ranges::any_of(p.step->buffers, later)) return std::nullopt;
  return multiplication_of(plan, *p.step, [&](int b) {
    const Shapes::OfBuffer& shape = shapes.buffers[static_cast<size_t>(b)];
    return device::driver::Strided{shape.sizes, shape.strides, buffer(b).type.dtype};
  });
}

Ints Prepared::shaping_values(Ints values) const {
  for (size_t i = 0; i < values.size(); ++i)
    if (!shaping[i]) values[i] = 0;
  return values;
}

// ---- steps ----

Prepared::Prepared(lower::Lowered lowered_, loops::Plan plan_, device::PlanCode code_, SymbolTable symbols_)
    : lowered(std::move(lowered_)),
      plan(std::move(plan_)),
      code(code_.is_there() ? std::move(code_) : device::PlanCode::when_used(plan)),
      symbols(std::move(symbols_)),
      first_visible_write(loops::first_visible_write(plan)) {
  for (const PlanBuffer& b : plan.buffers) device_of_buffer.push_back(use(b.type.device));
  for (const loops::Arena& a : plan.arenas) device_of_arena.push_back(use(a.device));
  prepare(plan.fold_steps, fold_steps);
  prepare(plan.steps, steps);
  find_fold_inputs();
  find_shaping_symbols();
  const bool any_data = std::any_of(symbols.begin(), symbols.end(),
                                    [](const SymbolRow& s) { return s.from == SymbolRow::From::data; });
  if (any_data) {
    find_learning_steps();
    find_waiting_buffers();
    find_waiting_steps();
    find_waiting_results();
  }
  find_lifetimes();
}

size_t Prepared::use(graph::Device device) {
  const c10::Device torchs = device::to_torch(device);
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].device == torchs) return i;
  devices.push_back({torchs, device::find(device.kind)});
  return devices.size() - 1;
}

/// Does nobody notice where what the call gives is its operands' memory? On the processor, of inputs where
/// none is written, or of what another call of ATen made, which no kernel stores over; what is itself
/// returned is no operand that is shown.
bool Prepared::shows_operands(const Step& s) const {
  auto memory = [&](int b) {  // of what dies where a kernel stores over it, too
    for (;; b = plan.buffers[b].kind == BufferKind::Alias ? plan.buffers[b].source : plan.buffers[b].over)
      if (plan.buffers[b].kind != BufferKind::Alias && plan.buffers[b].over < 0) return b;
  };
  std::vector<char> by_call(plan.buffers.size()), by_others = by_call;
  bool writes_inputs = false;
  for (const Step& other : plan.steps)
    for (size_t i = static_cast<size_t>(other.operand_count); i < other.buffers.size(); ++i) {
      const int b = memory(other.buffers[i]);
      (other.kind == StepKind::Extern && plan.buffers[b].owned_by_step ? by_call : by_others)[b] = 1;
      writes_inputs |= plan.buffers[b].kind == BufferKind::Input;
    }
  for (size_t i = 0; i < s.buffers.size(); ++i) {
    const int b = memory(s.buffers[i]);
    const PlanBuffer& buffer = plan.buffers[b];
    if (!graph::is_processor(buffer.type.device)) return false;
    const bool is_operand = i < static_cast<size_t>(s.operand_count);
    const bool is_held =
        buffer.kind == BufferKind::Temp || (!is_operand && buffer.kind == BufferKind::Output);
    const bool made_here = by_call[b] && !by_others[b] && is_held;
    const bool is_given = is_operand && buffer.kind == BufferKind::Input && !writes_inputs;
    if (!made_here && !is_given) return false;
  }
  return true;
}

void Prepared::prepare(const std::vector<Step>& from, std::vector<PreparedStep>& to) {
  to.reserve(from.size());
  for (const Step& s : from) {
    PreparedStep& p = to.emplace_back();
    p.step = &s;
    p.name = name_of(s);
    p.kernel = loops::kernel_of(s);
    if (p.kernel >= 0 || s.kind == StepKind::Pack) {
      p.code = &code.of(s.device);
      p.queue = use(s.device);
    }
    if (s.kind == StepKind::Library) p.library = &find_library(*s.node);
    if (s.kind == StepKind::Extern) {
      p.call = &lowered.calls[s.call];
      p.shows = &from == &plan.steps && p.call->clone_results && shows_operands(s);
    }
    p.shape = static_cast<int>(fold_steps.size() + steps.size()) - 1;
  }
  for (size_t first = 0, end; first < to.size(); first = end) {
    end = first + 1;
    const int list = to[first].step->list;
    while (list >= 0 && end < to.size() && to[end].step->list == list) ++end;
    to[first].together = static_cast<int>(end - first);
  }
}

/// What a profiler calls a step.
std::string Prepared::name_of(const Step& s) const {
  switch (s.kind) {
    case StepKind::Kernel: return "torchbolt::" + plan.kernels[s.kernel].name;
    case StepKind::Contraction: return "torchbolt::" + plan.kernels[s.epilogue].name;
    case StepKind::Library: return "torchbolt::" + std::string(graph::op_info(s.node->op).name);
    case StepKind::Extern: {
      const std::string name = c10::toString(lowered.calls[s.call].op.operator_name());
      return name.starts_with("torchbolt::") ? name : "torchbolt::" + name;
    }
    case StepKind::Pack: return "torchbolt::pack_weights";
    case StepKind::Copy: return "torchbolt::copy";
  }
  return "torchbolt::step";
}

std::vector<StepFacts> Prepared::costs() const {
  static constexpr const char* kKinds[] = {"kernel", "contraction", "pack", "library", "extern", "copy"};
  const std::vector<double> measured = times.best();
  std::vector<StepFacts> out;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& s = *steps[i].step;
    StepFacts facts;
    facts.kind = kKinds[static_cast<size_t>(s.kind)];
    facts.name = steps[i].name.substr(sizeof("torchbolt::") - 1);
    if (s.kind == StepKind::Kernel) {
      const loops::StepCost cost = loops::cost_of(plan, s);
      facts.bytes = cost.work.bytes, facts.instructions = cost.work.instructions;
      facts.repeated = cost.repeated, facts.predicted_ns = cost.nanoseconds;
    }
    if (i < measured.size()) facts.measured_ns = measured[i];
    out.push_back(std::move(facts));
  }
  return out;
}

int Prepared::owner(int b) const { return loops::memory_of(plan, b); }

bool Prepared::lies_in_arena(size_t i) const {
  const PlanBuffer& b = plan.buffers[i];
  return b.kind == BufferKind::Temp && !b.owned_by_step && !b.apart && !waits(i);
}

void Prepared::find_fold_inputs() {
  in_fold.resize(plan.buffers.size());
  for (const Step& s : plan.fold_steps)
    for (int b : s.buffers) {  // an epilogue's operands lie behind the contraction's
      b = owner(b);
      in_fold[b] = 1;
      if (buffer(b).kind == BufferKind::Input) fold_inputs.push_back(buffer(b).source);
    }
  std::sort(fold_inputs.begin(), fold_inputs.end());
  fold_inputs.erase(std::unique(fold_inputs.begin(), fold_inputs.end()), fold_inputs.end());
}

// Shapes are evaluated again where one of these has another value; the rest goes straight to the kernels.
void Prepared::find_shaping_symbols() {
  if (symbols.empty()) return;  // extents ask for the code
  Syms found;
  auto add = [&](const Syms& xs) {
    for (Sym x : xs) collect_symbols(x, &found);
  };
  for (const PlanBuffer& b : plan.buffers) {
    add(all_of(b));
    add({b.arena_offset});
  }
  for (const auto* list : {&lowered.outputs, &lowered.reshaped})
    for (const TensorOut& o : *list) add(all_of(o));
  for (const loops::Arena& a : plan.arenas) add({a.bytes});
  for (const auto* list : {&fold_steps, &steps})
    for (const PreparedStep& p : *list) {
      add(p.extents());
      if (!p.call) continue;
      for (Sym s : p.given(plan))
        if (!s.is_const() && number_step(*s.node()) < 0) add({s});
    }
  for (const SymbolRow& s : symbols)
    shaping.push_back(std::find(found.begin(), found.end(), s.symbol) != found.end());
  for (auto* list : {&fold_steps, &steps})
    for (PreparedStep& p : *list) {
      const Syms given = p.given(plan);
      for (size_t k = 0; k < given.size(); ++k)
        for (size_t i = 0; i < symbols.size(); ++i)
          if (!shaping[i] && symbols[i].symbol == given[k]) p.numbers.emplace_back(k, i);
    }
}

// ---- sizes that are data ----

/// How many of data_sizes must be known for `sizes` to be.
int Prepared::data_phase(const Syms& sizes) const {
  int phase = 0;
  Syms inside;
  for (Sym s : sizes) collect_symbols(s, &inside);
  for (Sym s : inside) {
    if (!is_data_size(*s.node())) continue;
    const size_t place = place_in(symbols, *s.node());
    if (place == symbols.size() || symbols[place].found_by < 0)
      throw_unsupported("a size that is data (", s.str(), ") is never found out");
    phase = std::max(phase, symbols[place].found_by + 1);
  }
  return phase;
}

void Prepared::find_learning_steps() {
  for (PreparedStep& p : steps) {
    if (!p.call) continue;
    const auto here = static_cast<int>(data_sizes.size());
    for (size_t i = static_cast<size_t>(p.step->operand_count); i < p.step->buffers.size(); ++i) {
      const Syms& sizes = buffer(p.step->buffers[i]).type.sizes;
      for (size_t d = 0; d < sizes.size(); ++d)
        for (SymbolRow& s : symbols) {
          if (s.from != SymbolRow::From::data || s.found_by >= 0 || sizes[d] != s.symbol) continue;
          s.found_by = p.learns = here;
          s.result = static_cast<int>(i) - p.step->operand_count;
          s.dim = static_cast<int>(d);
        }
    }
    if (p.learns >= 0) data_sizes.emplace_back();
  }
}

void Prepared::find_waiting_buffers() {
  for (const PlanBuffer& b : plan.buffers) {
    const int phase = data_phase(all_of(b));
    if (phase)
      data_sizes[static_cast<size_t>(phase) - 1].buffers.push_back(static_cast<int>(buffer_phase_.size()));
    buffer_phase_.push_back(phase);
  }
}

void Prepared::find_waiting_steps() {
  int found = 0;
  for (PreparedStep& p : steps) {
    int phase = data_phase(p.given(plan));  // a kernel's extents are over the same symbols
    if (phase) {
      data_sizes[static_cast<size_t>(phase) - 1].steps.emplace_back(&p, p.shape);
      p.stores = stores_of(plan, p);
    }
    for (size_t b = 0; b < p.step->buffers.size(); ++b) {
      const bool result = p.learns >= 0 && b >= static_cast<size_t>(p.step->operand_count);
      if (!result) phase = std::max(phase, buffer_phase_[p.step->buffers[b]]);
    }
    if (phase > found) throw_unsupported("a size that is data is wanted before it is known");
    found += p.learns >= 0;
  }
}

void Prepared::find_waiting_results() {
  int result = 0;
  for (const auto* list : {&lowered.outputs, &lowered.reshaped})
    for (const TensorOut& o : *list) {
      if (const int phase = data_phase(all_of(o)))
        data_sizes[static_cast<size_t>(phase) - 1].results.push_back(result);
      ++result;
    }
}

/// One that was taken for another. What the operator gives is compared with that.
bool Prepared::is_taken_for_another(Sym size) const {
  return !size.is_const() && is_data_size(*size.node()) && place_in(symbols, *size.node()) == symbols.size();
}

void Prepared::check_data_sizes(const std::vector<SizeFact>& taken_for_granted) {
  for (const SizeFact& f : taken_for_granted)
    if (!is_taken_for_another(f.a))
      data_sizes[static_cast<size_t>(data_phase({f.a, f.b})) - 1].facts.push_back(f);
}

/// What does not lie in the arena lives no longer than it must.
void Prepared::find_lifetimes() {
  made_by_step_.assign(plan.buffers.size(), 0);
  const int last = static_cast<int>(steps.size()) - 1;  // what is returned is needed afterwards
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& b = plan.buffers[i];
    const auto memory = static_cast<size_t>(owner(static_cast<int>(i)));
    const BufferKind kind = plan.buffers[memory].kind;
    if (kind == BufferKind::Input && b.first_step < 0 && last > 0)
      steps[0].frees.push_back(static_cast<int>(i));  // nobody reads it
    if (kind == BufferKind::Fold || b.first_step < 0 || lies_in_arena(memory)) continue;
    const bool is_made = kind == BufferKind::Temp || (kind == BufferKind::Output && !waits(i) && !in_fold[i]);
    if (i == memory && is_made && !b.owned_by_step) {
      // All memory is got before the caller can see anything.
      const int at = waits(i) ? b.first_step : std::min(b.first_step, first_visible_write);
      steps[at].makes.push_back(static_cast<int>(i));
      made_by_step_[i] = 1;
    }
    if (kind != BufferKind::Output && b.last_step < last)
      steps[b.last_step].frees.push_back(static_cast<int>(i));
  }
}

}  // namespace bolt::run

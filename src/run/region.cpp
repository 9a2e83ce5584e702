// run/region.cpp
// What is decided before the first call; region_run.cpp runs it.
#include "run/region.h"

#include <algorithm>

#include "loops/in_place.h"
#include "run/region_parts.h"
#include "support/background.h"
#include "support/log.h"
#include "support/nesting.h"
#include "support/symbols.h"

namespace bolt::run {
namespace {

constexpr size_t kMostShapes = 64;  // sets of sizes remembered
// Each packs the weights for itself, so they are few.
constexpr size_t kMostSpecial = 2;
constexpr int kOften = 100;

}  // namespace

Region::Region(record::Tape tape, std::vector<record::TensorId> wanted, std::string why,
               std::unordered_map<int, at::Tensor> constants, std::vector<lower::SizeSymbol> symbols)
    : tape_(std::move(tape)),
      wanted_(std::move(wanted)),
      replay_(true),
      visible_writes_(tape_),
      constants_(std::move(constants)),
      symbols_(std::move(symbols)) {
  facts.ops = static_cast<int>(tape_.entries.size());
  facts.why_replayed = std::move(why);
}

Region::Region(record::Tape tape, std::vector<record::TensorId> wanted, lower::Lowered lowered,
               loops::Plan plan, codegen::cpu::PlanCode code, std::vector<lower::SizeSymbol> symbols)
    : tape_(std::move(tape)),
      wanted_(std::move(wanted)),
      lowered_(std::move(lowered)),
      plan_(std::move(plan)),
      code_(std::move(code)),
      symbols_(std::move(symbols)) {
  for (const record::TensorId id : wanted_) {
    const int producer = tape_.tensors.empty() ? -1 : tape_.tensors[static_cast<size_t>(id)].producer;
    modes_.push_back(producer < 0
                         ? std::nullopt
                         : std::optional(tape_.entries[static_cast<size_t>(producer)].inference_mode));
  }
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
  for (const PlanBuffer& b : plan_.buffers) made->buffers.push_back(Shapes::of(b, value));
  for (const auto* list : {&fold_steps_, &steps_})
    for (const PreparedStep& p : *list) made->steps.push_back(Shapes::of(p, plan_, value));
  for (const auto* list : {&lowered_.outputs, &lowered_.reshaped})
    for (const TensorOut& o : *list) made->results.push_back(Shapes::of(o, value));
  made->arena_bytes = value(plan_.arena_bytes);
  std::lock_guard lock(mutex_);
  if (shapes_.size() >= kMostShapes) shapes_.pop_back();
  shapes_.insert(shapes_.begin(), made);
  return made;
}

/// How many of data_sizes_ must be known for `sizes` to be.
int Region::data_phase(const Syms& sizes) const {
  int phase = 0;
  Syms inside;
  for (Sym s : sizes) collect_symbols(s, &inside);
  for (Sym s : inside) {
    if (!is_data_size(*s.node())) continue;
    auto finds = [&](const DataSizes& d) {
      return std::any_of(d.found.begin(), d.found.end(),
                         [&](const auto& f) { return symbols_[f.symbol].symbol == s; });
    };
    const auto at = std::find_if(data_sizes_.begin(), data_sizes_.end(), finds);
    if (at == data_sizes_.end()) throw_unsupported("a size that is data (", s.str(), ") is never found out");
    phase = std::max(phase, static_cast<int>(at - data_sizes_.begin()) + 1);
  }
  return phase;
}

void Region::find_data_sizes() {
  if (std::none_of(symbols_.begin(), symbols_.end(),
                   [](const auto& s) { return s.input == lower::SizeSymbol::kData; }))
    return;
  std::vector<char> known(symbols_.size(), 0);
  for (PreparedStep& p : steps_) {
    if (!p.call) continue;
    DataSizes here;
    for (size_t i = static_cast<size_t>(p.step->operand_count); i < p.step->buffers.size(); ++i) {
      const Syms& sizes = plan_.buffers[static_cast<size_t>(p.step->buffers[i])].type.sizes;
      for (size_t d = 0; d < sizes.size(); ++d)
        for (size_t k = 0; k < symbols_.size(); ++k)
          if (!known[k] && symbols_[k].input == lower::SizeSymbol::kData && sizes[d] == symbols_[k].symbol) {
            known[k] = 1;
            here.found.push_back({static_cast<int>(i) - p.step->operand_count, static_cast<int>(d), k});
          }
    }
    if (here.found.empty()) continue;
    p.learns = static_cast<int>(data_sizes_.size());
    data_sizes_.push_back(std::move(here));
  }
  auto at = [&](int phase) -> DataSizes& { return data_sizes_[static_cast<size_t>(phase) - 1]; };
  for (const PlanBuffer& b : plan_.buffers) {
    Syms all = b.type.sizes;
    all.insert(all.end(), b.type.strides.begin(), b.type.strides.end());
    all.push_back(b.offset);
    const int phase = data_phase(all);
    if (phase) at(phase).buffers.push_back(static_cast<int>(buffer_phase_.size()));
    buffer_phase_.push_back(phase);
  }
  int found = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    PreparedStep& p = steps_[i];
    Syms all = p.given(plan_);
    if (p.kernel) {
      const auto& kernel = plan_.kernels[static_cast<size_t>(
          p.step->kind == StepKind::Kernel ? p.step->kernel : p.step->epilogue)];
      all.insert(all.end(), {p.kernel->work, p.kernel->second_work});
      for (size_t b = 0; b < p.step->buffers.size(); ++b) {
        const bool operand =
            p.step->kind == StepKind::Contraction && b < static_cast<size_t>(p.step->operand_count);
        const size_t in_kernel =
            p.step->kind == StepKind::Contraction ? b - static_cast<size_t>(p.step->operand_count) : b;
        if (!operand && kernel.buffers[in_kernel].role != loops::BufferRole::In)
          p.stores.push_back(p.step->buffers[b]);
      }
    }
    int phase = data_phase(all);
    if (phase)
      at(phase).steps.emplace_back(&p, p.shape);
    else
      p.stores.clear();
    for (size_t b = 0; b < p.step->buffers.size(); ++b) {
      const bool result = p.learns >= 0 && b >= static_cast<size_t>(p.step->operand_count);
      if (!result) phase = std::max(phase, buffer_phase_[static_cast<size_t>(p.step->buffers[b])]);
    }
    if (phase > found) throw_unsupported("a size that is data is wanted before it is known");
    found += p.learns >= 0;
  }
  size_t result = 0;
  for (const auto* list : {&lowered_.outputs, &lowered_.reshaped})
    for (const TensorOut& o : *list) {
      Syms all = o.sizes;
      all.insert(all.end(), o.strides.begin(), o.strides.end());
      all.push_back(o.offset);
      if (const int phase = data_phase(all)) at(phase).results.push_back(static_cast<int>(result));
      ++result;
    }
}

/// Temporaries that do not lie in the arena live no longer than they must.
void Region::find_lifetimes() {
  const int last = static_cast<int>(steps_.size()) - 1;  // what is returned is needed afterwards
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const PlanBuffer& b = plan_.buffers[i];
    size_t owner = i;
    while (plan_.buffers[owner].kind == BufferKind::Alias)
      owner = static_cast<size_t>(plan_.buffers[owner].source);
    const PlanBuffer& memory = plan_.buffers[owner];
    if (memory.kind != BufferKind::Temp || b.first_step < 0 || !(memory.owned_by_step || waits(owner)))
      continue;
    if (i == owner && !b.owned_by_step)
      steps_[static_cast<size_t>(b.first_step)].makes.push_back(static_cast<int>(i));
    if (b.last_step < last) steps_[static_cast<size_t>(b.last_step)].frees.push_back(static_cast<int>(i));
  }
}

void Region::check_data_sizes(const std::vector<SizeFact>& taken_for_granted) {
  for (const SizeFact& f : taken_for_granted)
    data_sizes_[static_cast<size_t>(data_phase({f.a, f.b})) - 1].facts.push_back(f);
}

Region::Region(record::Tape tape, std::vector<record::TensorId> wanted, Function function,
               std::vector<lower::SizeSymbol> symbols)
    : tape_(std::move(tape)),
      wanted_(std::move(wanted)),
      replay_(true),
      function_(std::move(function)),
      releases_gil_(false),
      symbols_(std::move(symbols)) {
  facts.ops = static_cast<int>(tape_.entries.size());
  facts.compiled = true;
}

Region::~Region() = default;

Ints Region::values_of(const std::vector<at::Tensor>& tape_inputs, const Ints& numbers) const {
  Ints values;
  size_t next = 0;
  for (const lower::SizeSymbol& s : symbols_) switch (s.input) {
      case lower::SizeSymbol::kNumber: values.push_back(numbers[next++]); break;
      case lower::SizeSymbol::kData: values.push_back(s.hint); break;  // until it is known
      default: {
        const at::Tensor& t = tape_inputs[static_cast<size_t>(s.input)];
        values.push_back(s.of(s.dim < kStrideBit ? t.size(s.dim) : t.stride(s.dim - kStrideBit)));
      }
    }
  return values;
}

std::vector<int> Region::written_inputs() const {
  std::vector<int> out;
  if (function_)  // a backend may store what was written when all else is done, as we do
    for (size_t i : VisibleWrites(tape_).inputs) out.push_back(static_cast<int>(i));
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
    case StepKind::Extern: {
      const std::string name = c10::toString(lowered_.calls[static_cast<size_t>(s.call)].op.operator_name());
      return name.starts_with("torchbolt::") ? name : "torchbolt::" + name;
    }
    case StepKind::Pack: return "torchbolt::pack_weights";
    case StepKind::Copy: return "torchbolt::copy";
  }
  return "torchbolt::step";
}

void Region::prepare() {
  auto prepare_list = [&](const std::vector<Step>& from, std::vector<PreparedStep>& to) {
    to.reserve(from.size());
    for (const Step& s : from) {
      PreparedStep& p = to.emplace_back();
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
      p.shape = static_cast<int>(fold_steps_.size() + steps_.size()) - 1;
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
    for (int b : s.buffers) {  // an epilogue's operands lie behind the contraction's
      while (plan_.buffers[b].kind == BufferKind::Alias) b = plan_.buffers[b].source;
      if (plan_.buffers[b].kind == BufferKind::Input) fold_inputs_.push_back(plan_.buffers[b].source);
    }
  std::sort(fold_inputs_.begin(), fold_inputs_.end());
  fold_inputs_.erase(std::unique(fold_inputs_.begin(), fold_inputs_.end()), fold_inputs_.end());

  find_shaping_symbols();
  find_data_sizes();
  find_lifetimes();

  facts.ops = static_cast<int>(tape_.entries.size());
  facts.compiled = true;
  facts.kernels_before_fusion = plan_.kernels_before_fusion;
  facts.from_cache = code_.module->from_cache();
  std::vector<std::optional<int64_t>> moves(plan_.kernels.size());  // by kernel: equal layers share one
  bool contracts = false;
  can_fail_ = !plan_.fold_steps.empty();
  for (const Step& s : plan_.steps) {
    can_fail_ |= loops::can_fail(plan_, s);
    contracts |= s.kind == StepKind::Contraction;
    facts.kernels +=
        s.kind == StepKind::Kernel || s.kind == StepKind::Contraction || s.kind == StepKind::Copy;
    facts.library_calls += s.kind == StepKind::Library;
    facts.extern_calls += s.kind == StepKind::Extern;
    if (s.kind != StepKind::Kernel && s.kind != StepKind::Contraction) continue;
    const auto kernel = static_cast<size_t>(s.kind == StepKind::Kernel ? s.kernel : s.epilogue);
    if (!moves[kernel]) moves[kernel] = loops::traffic(plan_.kernels[kernel]).bytes.value_or(0);
    facts.bytes_moved += *moves[kernel];
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
    if (made) made->modes_ = general->modes_;
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
      if (p.kernel)
        add({p.kernel->work, p.kernel->second_work});
      else if (p.call)
        for (const record::Arg& a : p.call->args)
          for (Sym s : a.syms)
            if (!s.is_const() && number_step(*s.node()) < 0) add({s});
  for (const lower::SizeSymbol& s : symbols_)
    shaping_.push_back(std::find(found.begin(), found.end(), s.symbol) != found.end());
  for (auto* list : {&fold_steps_, &steps_})
    for (PreparedStep& p : *list) {
      const Syms given = p.given(plan_);
      for (size_t k = 0; k < given.size(); ++k)
        for (size_t i = 0; i < symbols_.size(); ++i)
          if (!shaping_[i] && symbols_[i].symbol == given[k]) p.numbers.emplace_back(k, i);
    }
}

}  // namespace bolt::run

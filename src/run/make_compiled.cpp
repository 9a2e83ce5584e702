// run/make_compiled.cpp
#include "run/make_compiled.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "record/copy.h"
#include "run/choose_schedules.h"
#include "run/choose_ways.h"
#include "run/eager_trial.h"
#include "run/kept_plans.h"
#include "run/plan_options.h"
#include "support/dump.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::run {
namespace {

using From = SymbolRow::From;

/// What other programs for the same region are made from, later and on another thread.
struct ProgramSource {
  std::shared_ptr<const graph::Graph> graph;
  std::shared_ptr<const lower::Lowered> rest;
  std::vector<record::TensorId> wanted;
  SymbolTable symbols;
  std::string name;
  loops::PlanOptions options;

  using Value = std::function<Sym(Sym)>;
  /// `value` of each symbol in its place; `left` are the symbols that remain. Null: it cannot be made.
  std::shared_ptr<Compiled> make(const Value& value, SymbolTable left, const loops::PlanOptions& options,
                                 const std::string& what, record::Tape tape = {}) const {
    try {
      lower::Lowered one = lower::substituted(*graph, *rest, value);
      Stages stages;
      std::vector<record::TensorId> same = wanted;
      auto region = make_compiled(std::move(one), tape, same, std::move(left), name, options, stages);
      log("dynamic", name + ": a program for " + what);
      return region;
    } catch (const std::exception& e) {
      log("dynamic", name + ": no program for " + what + ": " + e.what());
      return nullptr;
    }
  }

  std::shared_ptr<Compiled> for_sizes(const std::vector<int64_t>& values) const {
    auto known = [&](Sym s) {
      for (size_t i = 0; i < symbols.size(); ++i)
        if (symbols[i].symbol == s && symbols[i].from == From::input) return Sym(values[i]);
      return s;
    };
    SymbolTable numbers;
    for (const SymbolRow& s : symbols)
      if (s.from != From::input) numbers.push_back(s);
    return counted(make(known, std::move(numbers), options, "sizes that came often"));
  }

  std::shared_ptr<Compiled> for_changing_parameters() const {
    loops::PlanOptions unfolded = options;
    unfolded.fold_params = false;
    return counted(make(same_symbol, symbols, unfolded, "parameters that keep changing"));
  }

  std::shared_ptr<Compiled> with_less_fusion(record::Tape tape) const {
    loops::PlanOptions careful = options;
    careful.repeats = false;
    return make(same_symbol, symbols, careful, "a trial beside eager, with less fusion", std::move(tape));
  }

  static Sym same_symbol(Sym s) { return s; }
  static std::shared_ptr<Compiled> counted(std::shared_ptr<Compiled> made) {
    if (made) ++Stats::get().specialized;
    return made;
  }
};

/// With what bolt-opt has to be told to make it of the graph.
std::string text_of(const loops::Plan& plan, const std::vector<int>& free_outputs) {
  std::string free;
  for (int output : free_outputs) free += (free.empty() ? "; --free=" : ",") + std::to_string(output);
  return (free.empty() ? "" : free + "\n") + loops::print(plan);
}

/// Two layer norms of one value keep its mean twice: the caller may write to what he sees, but nobody writes
/// to these.
void show_equal_ones_in_one_memory(lower::Lowered& lowered, const loops::Plan& plan) {
  std::map<int, size_t> first;  // by buffer
  for (size_t i = 0; i < lowered.outputs.size(); ++i) {
    lower::TensorOut& out = lowered.outputs[i];
    if (!out.unseen || out.kind != lower::TensorOut::Kind::Fresh) continue;
    const auto [at, is_first] = first.try_emplace(plan.outputs[out.index].buffer, i);
    const lower::TensorOut& other = lowered.outputs[at->second];
    if (is_first || out.sizes != other.sizes || out.strides != other.strides) continue;
    out.kind = lower::TensorOut::Kind::OutputView;
    out.index = static_cast<int>(at->second);
  }
}

/// `at_once`: with its code.
std::shared_ptr<Compiled> made(lower::Lowered lowered, record::Tape& tape,
                               std::vector<record::TensorId>& wanted, SymbolTable symbols,
                               const std::string& name, const loops::PlanOptions& options, Stages& stages,
                               const KeptOutputs& kept, bool at_once) {
  for (int output : kept.parts) lowered.graph->outputs[output].may_be_part = true;
  loops::Plan plan = planned(std::move(lowered.graph), lowered.calls, options, stages, kept.free,
                             symbols.empty() && !options.tuned);
  check_sizes(plan);
  std::vector<std::string> choices;
  if (options.measuring) choices = choose_ways(plan, *options.measuring, name, options.tuned);
  if (options.measuring && options.tuned)
    for (std::string& line : choose_schedules(plan, *options.measuring, name))
      choices.push_back(std::move(line));
  const auto is_one = [](const std::vector<int>& list, int output) {
    return std::ranges::find(list, output) != list.end();
  };
  for (lower::TensorOut& out : lowered.outputs)
    if (out.kind == lower::TensorOut::Kind::Fresh &&
        (is_one(kept.free, out.index) || is_one(kept.parts, out.index)))
      out.strides = plan.buffers[plan.outputs[out.index].buffer].type.strides;
  for (size_t i = 0; i < kept.unseen.size(); ++i) lowered.outputs[i].unseen = kept.unseen[i];
  show_equal_ones_in_one_memory(lowered, plan);
  if (log_wanted("fusion")) log("fusion", loops::print(plan));
  if (dump_wanted("plan", "", name)) dump("plan", "", name, text_of(plan, kept.free));
  stages.enter("codegen");
  device::PlanCode code = code_waits() ? device::PlanCode() : device::PlanCode(plan);
  if (at_once) code.finish();
  stages.enter("program");
  auto region = std::make_shared<Compiled>(std::move(tape), std::move(wanted), std::move(lowered),
                                           std::move(plan), std::move(code), std::move(symbols));
  region->facts.choices = std::move(choices);
  stages.finish();
  return region;
}

}  // namespace

std::atomic<bool>& code_waits() {
  static std::atomic<bool> waits{false};
  return waits;
}

std::shared_ptr<Compiled> begin_compiled(lower::Lowered lowered, record::Tape& tape,
                                         std::vector<record::TensorId>& wanted, SymbolTable symbols,
                                         const loops::PlanOptions& options, Stages& stages,
                                         const KeptOutputs& kept) {
  return made(std::move(lowered), tape, wanted, std::move(symbols), "", options, stages, kept, false);
}

std::shared_ptr<Compiled> make_compiled(lower::Lowered lowered, record::Tape& tape,
                                        std::vector<record::TensorId>& wanted, SymbolTable symbols,
                                        const std::string& name, const loops::PlanOptions& options,
                                        Stages& stages) {
  auto region = made(std::move(lowered), tape, wanted, std::move(symbols), name, options, stages, {}, true);
  region->finish_code(name);
  return region;
}

std::shared_ptr<Runnable> make_region(lower::Lowered lowered, Recorded& recorded, lower::Sizes& sizes,
                                      Stages& stages) {
  const std::string& name = recorded.name;
  const bool any_data = sizes.any_data(), tried = recorded.measured && !any_data;
  const auto choices = std::make_shared<std::vector<std::string>>();
  const loops::PlanOptions options = plan_options(recorded, choices);
  SymbolTable symbols = sizes.open();
  const bool varies = !any_data && std::any_of(symbols.begin(), symbols.end(),
                                               [](const auto& s) { return s.from == From::input; });
  const auto& inputs = lowered.graph->inputs;
  const bool has_parameters = !any_data && std::any_of(inputs.begin(), inputs.end(), [](const auto& in) {
    return in.kind == graph::InputKind::Param;
  });
  std::shared_ptr<const ProgramSource> source;
  if (varies || has_parameters || tried)
    source = std::make_shared<const ProgramSource>(ProgramSource{
        graph::clone(*lowered.graph), std::make_shared<const lower::Lowered>(lower::without_graph(lowered)),
        recorded.wanted, symbols, name, options});
  auto region = make_compiled(std::move(lowered), recorded.tape, recorded.wanted, std::move(symbols), name,
                              options, stages);
  if (tried)
    region->cautious = [source, recorded = std::make_shared<record::Tape>(record::copy_of(region->tape()))] {
      return source->with_less_fusion(std::move(*recorded));
    };
  if (varies) region->specialize = [source](const auto& values) { return source->for_sizes(values); };
  if (has_parameters) region->unfolded = [source] { return source->for_changing_parameters(); };
  if (int calls = region->facts.extern_calls)
    log("perf_hints",
        name + ": " + std::to_string(calls) + " operators without a lowering run as ATen calls");
  region->facts.choices.insert(region->facts.choices.end(), choices->begin(), choices->end());
  if (!tried) return region;
  return make_trial(std::move(region), recorded.for_lowering(), recorded.number_sizes, sizes, name);
}

}  // namespace bolt::run

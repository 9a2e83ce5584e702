// run/make_compiled.cpp: see make_compiled.h.
#include "run/make_compiled.h"

#include <algorithm>

#include "loops/from_graph.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::run {
namespace {

using lower::SizeSymbol;
using Specialize = decltype(Compiled::specialize);

/// What makes the same region for known sizes: Compiled::specialize.
Specialize specializer(const lower::Lowered& lowered, std::vector<record::TensorId> wanted,
                       std::vector<SizeSymbol> symbols, const std::string& name) {
  std::shared_ptr<const graph::Graph> general = graph::clone(*lowered.graph);
  auto rest = std::make_shared<const lower::Lowered>(lower::without_graph(lowered));
  return [=](const std::vector<int64_t>& values) -> std::shared_ptr<Compiled> {
    try {
      auto known = [&](Sym s) {
        for (size_t i = 0; i < symbols.size(); ++i)
          if (symbols[i].symbol == s && symbols[i].input >= 0) return Sym(values[i]);
        return s;
      };
      lower::Lowered one = lower::substituted(*general, *rest, known);
      std::vector<SizeSymbol> numbers;
      for (const SizeSymbol& s : symbols)
        if (s.input < 0) numbers.push_back(s);
      Stages stages;
      record::Tape tape;
      std::vector<record::TensorId> same = wanted;
      auto region = make_compiled(std::move(one), tape, same, std::move(numbers), name, stages);
      ++Stats::get().specialized;
      log("dynamic", name + ": a program for sizes that came often");
      return region;
    } catch (const std::exception& e) {
      log("dynamic", name + ": no program for sizes that came often: " + e.what());
      return nullptr;
    }
  };
}

}  // namespace

std::shared_ptr<Compiled> make_compiled(lower::Lowered lowered, record::Tape& tape,
                                        std::vector<record::TensorId>& wanted,
                                        std::vector<SizeSymbol> symbols, const std::string& name,
                                        Stages& stages) {
  auto same_call = [&](int64_t a, int64_t b) {
    return lowered.calls[static_cast<size_t>(a)] == lowered.calls[static_cast<size_t>(b)];
  };
  loops::Plan plan = loops::from_graph(std::move(lowered.graph), same_call, device::plan_options(), stages);
  check_sizes(plan);
  if (log_wanted("fusion")) log("fusion", loops::print(plan));
  stages.enter("codegen");
  device::PlanCode code(plan);
  auto& stats = Stats::get();
  ++(code.from_cache() ? stats.cache_hits : stats.cache_misses);
  log("cache", name + (code.from_cache() ? ": found in the disk cache" : ": compiled"));
  stages.enter("program");
  auto region = std::make_shared<Compiled>(std::move(tape), std::move(wanted), std::move(lowered),
                                           std::move(plan), std::move(code), std::move(symbols));
  stages.finish();
  return region;
}

std::shared_ptr<Compiled> make_specializing(lower::Lowered lowered, record::Tape& tape,
                                            std::vector<record::TensorId>& wanted,
                                            std::vector<SizeSymbol> symbols, bool any_data,
                                            const std::string& name, Stages& stages) {
  Specialize specialize;
  if (!any_data && std::any_of(symbols.begin(), symbols.end(), [](const auto& s) { return s.input >= 0; }))
    specialize = specializer(lowered, wanted, symbols, name);
  auto region = make_compiled(std::move(lowered), tape, wanted, std::move(symbols), name, stages);
  region->specialize = std::move(specialize);
  if (int calls = region->facts.extern_calls)
    log("perf_hints",
        name + ": " + std::to_string(calls) + " operators without a lowering run as ATen calls");
  return region;
}

}  // namespace bolt::run

// compile.cpp
// Recorded -> Region: the map. Each line is a stage; each stage is a folder.
#include "compile.h"

#include <algorithm>
#include <chrono>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "autograd/functionalize.h"
#include "codegen/cpu/compile_plan.h"
#include "graph/passes/passes.h"
#include "graph/verify.h"
#include "loops/plan.h"
#include "program/functional.h"
#include "program/stats.h"
#include "record/recorder.h"
#include "support/error.h"
#include "support/log.h"

namespace bolt {
namespace {

/// Names the stage that is running and how long each took.
class Stages {
 public:
  void enter(const char* name) {
    finish();
    name_ = name;
    begin_ = Clock::now();
  }
  void finish() {
    if (!name_) return;
    seconds.emplace_back(name_, std::chrono::duration<double>(Clock::now() - begin_).count());
    name_ = nullptr;
  }
  std::string name() const { return name_ ? name_ : ""; }
  std::vector<std::pair<std::string, double>> seconds;

 private:
  using Clock = std::chrono::steady_clock;
  const char* name_ = nullptr;
  Clock::time_point begin_;
};

/// The compiler's memory goes back before the first run packs weights: the peaks do not add up.
struct GiveMemoryBack {
  ~GiveMemoryBack() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
  }
};

// With gradients wanted the region runs eager's own operators, which ATen differentiates.
bool needs_gradients(const record::Tape& tape) {
  for (const auto& t : tape.tensors)
    if (t.input < 0 && t.requires_grad) return true;
  return false;
}

bool on_cpu(const record::Tape& tape) {
  for (const auto& t : tape.tensors)
    if (!t.device.is_cpu()) return false;
  return true;
}

std::string obstacle(const Recorded& r) {
  if (!r.obstacle.empty()) return r.obstacle;
  if (needs_gradients(r.tape)) return "gradients are needed";
  if (!on_cpu(r.tape)) return "a tensor is not on the CPU";
  return "";
}

}  // namespace

namespace {

/// The stages in order. Throws SizeDemand where one of them cannot go on with `sizes`.
std::shared_ptr<program::Region> build(Recorded& recorded, autograd::Sizes& sizes, Stages& stages) {
  auto& stats = program::Stats::get();
  stages.enter("functionalize");
  auto lowered =
      autograd::functionalize(recorded.tape, recorded.wanted, {recorded.is_param, recorded.constants}, sizes);
  graph::verify(*lowered.graph);
  if (log_wanted("aot_graphs")) log("aot_graphs", graph::print(*lowered.graph));
  if (recorded.road == Road::functional) {
    std::string text = graph::print(*lowered.graph);
    auto run = program::run_functional(std::move(lowered), recorded.wanted.size());
    auto region =
        std::make_shared<program::Region>(std::move(recorded.tape), std::move(recorded.wanted), run);
    region->facts.graph_text = std::move(text);
    return region;
  }
  stages.enter("graph");
  graph::optimize(*lowered.graph);
  std::string graph_text = graph::print(*lowered.graph);
  log("post_grad_graphs", graph_text);
  stages.enter("loops");
  auto plan = loops::plan(std::move(lowered.graph), codegen::cpu::plan_options());
  program::check_sizes(plan);
  std::string plan_text = loops::print(plan);
  log("fusion", plan_text);
  stages.enter("codegen");
  auto code = codegen::cpu::compile(plan);
  ++(code.module->from_cache() ? stats.cache_hits : stats.cache_misses);
  log("cache", recorded.name + (code.module->from_cache() ? ": found in the disk cache" : ": compiled"));
  stages.enter("program");
  auto region =
      std::make_shared<program::Region>(std::move(recorded.tape), std::move(recorded.wanted),
                                        std::move(lowered), std::move(plan), std::move(code), sizes.open());
  stages.finish();
  if (int calls = region->facts.extern_calls)
    log("perf_hints",
        recorded.name + ": " + std::to_string(calls) + " operators without a lowering run as ATen calls");
  region->facts.graph_text = std::move(graph_text);
  region->facts.plan_text = std::move(plan_text);
  return region;
}

}  // namespace

std::shared_ptr<program::Region> compile(Recorded recorded) {
  autograd::Sizes sizes(recorded.tape, recorded.dynamic, std::move(recorded.size_facts));
  auto finished = [&](std::shared_ptr<program::Region> region) {
    region->size_symbols = sizes.all();
    region->size_facts = sizes.facts();
    for (const SizeValue& v : recorded.sizes_out) region->sizes_out.push_back(sizes.final(v));
    region->facts.sizes_given_up = sizes.given_up();
    for (const std::string& why : region->facts.sizes_given_up) log("dynamic", recorded.name + ": " + why);
    return region;
  };
  auto replayed = [&](const std::string& why, bool fallback) {
    sizes.begin_again();
    sizes.give_up(why);
    auto region = std::make_shared<program::Region>(std::move(recorded.tape), std::move(recorded.wanted), why,
                                                    std::move(recorded.constants));
    region->facts.fallback = fallback;
    if (fallback) log("perf_hints", recorded.name + ": a region runs eager's operators, because " + why);
    return finished(std::move(region));
  };
  if (log_wanted("graph_code"))
    log("graph_code", "recorded in " + recorded.name + "\n" + print(recorded.tape));
  if (recorded.road == Road::replay) return replayed("the backend is eager", false);
  const bool gradients = needs_gradients(recorded.tape);
  if (std::string why = obstacle(recorded); !why.empty()) return replayed(why, !gradients);

  GiveMemoryBack at_the_end;
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    Stages stages;
    try {
      auto region = build(recorded, sizes, stages);
      region->facts.stage_seconds = std::move(stages.seconds);
      program::Stats::get().compile_nanoseconds +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
              .count();
      return finished(std::move(region));
    } catch (const SizeDemand& demand) {
      const std::string where = demand.where.empty() ? "the " + stages.name() + " stage" : demand.where;
      if (!sizes.solve(demand, where + " (" + demand.what() + ")")) throw;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Unsupported) throw;
      return replayed(error.what(), true);
    }
  }
}

}  // namespace bolt

// compile.cpp
// Recorded -> Region: the map. Each line is a stage; each stage is a folder.
#include "compile.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "codegen/cpu/compile_plan.h"
#include "graph/passes/passes.h"
#include "graph/repeats.h"
#include "graph/verify.h"
#include "loops/plan.h"
#include "lower/functionalize.h"
#include "record/recorder.h"
#include "run/functional.h"
#include "support/error.h"
#include "support/log.h"
#include "support/parallel.h"
#include "support/stats.h"

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
    const double taken = std::chrono::duration<double>(Clock::now() - begin_).count();
    auto known = std::find_if(seconds.begin(), seconds.end(), [&](auto& s) { return s.first == name_; });
    if (known == seconds.end())
      seconds.emplace_back(name_, taken);
    else
      known->second += taken;
    name_ = nullptr;
  }
  std::string name() const { return name_ ? name_ : ""; }
  std::vector<std::pair<std::string, double>> seconds;

 private:
  using Clock = std::chrono::steady_clock;
  const char* name_ = nullptr;
  Clock::time_point begin_;
};

/// Of this process, in bytes. 0: there is no telling.
int64_t resident_memory() {
  int64_t pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %" SCNd64, &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * sysconf(_SC_PAGESIZE);
}

/// The compiler's memory goes back before the first run packs weights: the peaks do not add up. But only
/// where it is much: whoever allocates next faults it in again, page by page, and to the next compilation
/// that was a third of all stages but code generation.
struct GiveMemoryBack {
  static constexpr int64_t kMuch = 32 << 20;
  const int64_t before = resident_memory();
  ~GiveMemoryBack() {
#ifdef __GLIBC__
    if (resident_memory() - before > kMuch) malloc_trim(0);
#endif
  }
};

// With gradients wanted the region runs eager's own operators, which ATen differentiates. Without grad mode
// nothing is differentiated, though a view of a parameter still says that it requires a gradient.
bool needs_gradients(const record::Tape& tape) {
  for (const auto& t : tape.tensors)
    if (t.producer >= 0 && t.requires_grad && tape.entries[static_cast<size_t>(t.producer)].grad_mode)
      return true;
  return std::any_of(tape.entries.begin(), tape.entries.end(),
                     [&](const record::Entry& e) { return record::writes_gradients(tape, e); });
}

bool on_cpu(const record::Tape& tape) {
  for (const auto& t : tape.tensors)
    if (!t.device.is_cpu()) return false;
  return true;
}

/// Solves `sizes` until lowering can bind the sizes of every tensor of the tape. False: it cannot be lowered.
bool bind_sizes(const Recorded& recorded, lower::Sizes& sizes) {
  while (true) {
    try {
      lower::functionalize(recorded.tape, recorded.wanted, {recorded.is_param, recorded.constants}, sizes);
      return true;
    } catch (const SizeDemand& demand) {
      if (!sizes.solve(demand, demand.where + " (" + demand.what() + ")")) return false;
    } catch (const Error&) {
      return false;
    }
  }
}

std::string obstacle(const Recorded& r) {
  if (!r.obstacle.empty()) return r.obstacle;
  if (needs_gradients(r.tape)) return "gradients are needed";
  if (!on_cpu(r.tape)) return "a tensor is not on the CPU";
  return "";
}

/// The graph and loops stages. Equal layers are planned once.
loops::Plan plan(lower::Lowered& lowered, Stages& stages) {
  const loops::PlanOptions options = codegen::cpu::plan_options();
  auto optimize = [&](graph::Graph& g) {
    graph::verify(g);
    graph::optimize(g);
    if (log_wanted("post_grad_graphs")) log("post_grad_graphs", graph::print(g));
  };
  stages.enter("graph");
  auto few = graph::shorten(*lowered.graph, [&](int64_t a, int64_t b) {
    return lowered.calls[static_cast<size_t>(a)] == lowered.calls[static_cast<size_t>(b)];
  });
  if (few) {
    in_parallel(2, [&](size_t i) { optimize(i == 0 ? *few->graph : *few->one_more); });
    stages.enter("loops");
    if (auto planned = loops::plan(std::move(*few), options)) return std::move(*planned);
    log("fusion", "the steps of equal layers differ: all of them are planned");
  }
  stages.enter("graph");
  optimize(*lowered.graph);
  stages.enter("loops");
  return loops::plan(std::move(lowered.graph), options);
}

/// From the functional graph on. `tape` and `wanted` are taken once nothing can throw any more.
std::shared_ptr<run::Region> finish(lower::Lowered lowered, record::Tape& tape,
                                    std::vector<record::TensorId>& wanted,
                                    std::vector<lower::SizeSymbol> symbols, const std::string& name,
                                    Stages& stages) {
  auto& stats = Stats::get();
  loops::Plan plan = bolt::plan(lowered, stages);
  run::check_sizes(plan);
  if (log_wanted("fusion")) log("fusion", loops::print(plan));
  stages.enter("codegen");
  auto code = codegen::cpu::compile(plan);
  ++(code.module->from_cache() ? stats.cache_hits : stats.cache_misses);
  log("cache", name + (code.module->from_cache() ? ": found in the disk cache" : ": compiled"));
  stages.enter("program");
  auto region = std::make_shared<run::Region>(std::move(tape), std::move(wanted), std::move(lowered),
                                              std::move(plan), std::move(code), std::move(symbols));
  stages.finish();
  return region;
}

using Specialize = std::function<std::shared_ptr<run::Region>(const std::vector<int64_t>&)>;

/// What makes the same region for known sizes: Region::specialize.
Specialize specializer(const lower::Lowered& lowered, std::vector<record::TensorId> wanted,
                       std::vector<lower::SizeSymbol> symbols, const std::string& name) {
  std::shared_ptr<const graph::Graph> general = graph::clone(*lowered.graph);
  auto rest = std::make_shared<const lower::Lowered>(lower::without_graph(lowered));
  return [=](const std::vector<int64_t>& values) -> std::shared_ptr<run::Region> {
    try {
      auto known = [&](Sym s) {
        for (size_t i = 0; i < symbols.size(); ++i)
          if (symbols[i].symbol == s && symbols[i].input >= 0) return Sym(values[i]);
        return s;
      };
      lower::Lowered one = lower::substituted(*general, *rest, known);
      std::vector<lower::SizeSymbol> numbers;
      for (const lower::SizeSymbol& s : symbols)
        if (s.input < 0) numbers.push_back(s);
      Stages stages;
      record::Tape tape;
      std::vector<record::TensorId> same = wanted;
      auto region = finish(std::move(one), tape, same, std::move(numbers), name, stages);
      ++Stats::get().specialized;
      log("dynamic", name + ": a program for sizes that came often");
      return region;
    } catch (const std::exception& e) {
      log("dynamic", name + ": no program for sizes that came often: " + e.what());
      return nullptr;
    }
  };
}

/// The last files of a trace: what is run, or why nothing was compiled.
void write_trace(const run::Region& region, const Trace& trace) {
  const auto& f = region.facts;
  std::string report = f.why_replayed.empty() ? "" : "eager's operators run: " + f.why_replayed + "\n";
  for (const std::string& why : f.sizes_given_up) report += why + "\n";
  for (const auto& [stage, seconds] : f.stage_seconds)
    report += stage + ": " + std::to_string(seconds * 1e3) + " ms\n";
  trace.write("5_report.txt", report);
  if (std::string text = region.graph_text(); !text.empty()) trace.write("3_optimized_graph.txt", text);
  if (std::string text = region.plan_text(); !text.empty()) trace.write("4_plan.txt", text);
}

/// The stages in order. Throws SizeDemand where one of them cannot go on with `sizes`.
std::shared_ptr<run::Region> build(Recorded& recorded, lower::Sizes& sizes, Stages& stages) {
  stages.enter("functionalize");
  auto lowered =
      lower::functionalize(recorded.tape, recorded.wanted, {recorded.is_param, recorded.constants}, sizes);
  if (log_wanted("aot_graphs")) log("aot_graphs", graph::print(*lowered.graph));
  if (recorded.trace.wanted()) recorded.trace.write("2_graph.txt", graph::print(*lowered.graph));
  if (recorded.road == Road::functional) {
    graph::verify(*lowered.graph);
    std::string text = graph::print(*lowered.graph);
    auto run = run::run_functional(std::move(lowered), recorded.wanted.size(), run::Attempts(recorded.tape),
                                   sizes.open());
    auto region = std::make_shared<run::Region>(std::move(recorded.tape), std::move(recorded.wanted), run,
                                                sizes.open());
    region->facts.functional_text = std::move(text);
    return region;
  }
  Specialize specialize;
  const std::vector<lower::SizeSymbol> open = sizes.open();
  if (!sizes.any_data() && std::any_of(open.begin(), open.end(), [](const auto& s) { return s.input >= 0; }))
    specialize = specializer(lowered, recorded.wanted, open, recorded.name);
  auto region = finish(std::move(lowered), recorded.tape, recorded.wanted, open, recorded.name, stages);
  region->specialize = std::move(specialize);
  if (int calls = region->facts.extern_calls)
    log("perf_hints",
        recorded.name + ": " + std::to_string(calls) + " operators without a lowering run as ATen calls");
  return region;
}

}  // namespace

std::shared_ptr<run::Region> compile(Recorded recorded, const Other& other) {
  lower::Sizes sizes(recorded.tape, recorded.dynamic, recorded.number_symbols,
                     std::move(recorded.size_facts));
  sizes.not_guessed = std::move(recorded.not_guessed);
  auto finished = [&](std::shared_ptr<run::Region> region) {
    for (const lower::SizeSymbol& s : sizes.all())
      if (s.input != lower::SizeSymbol::kData) region->size_symbols.push_back(s);
    std::vector<SizeFact> about_data;
    for (SizeFact& f : sizes.facts())
      (holds_data_size(f.a) || holds_data_size(f.b) ? about_data : region->size_facts)
          .push_back(std::move(f));
    region->check_data_sizes(about_data);
    for (const SizeValue& v : recorded.number_sizes) region->number_sizes.push_back(sizes.final(v));
    region->facts.sizes_given_up = sizes.given_up();
    for (const std::string& why : region->facts.sizes_given_up) log("dynamic", recorded.name + ": " + why);
    if (recorded.trace.wanted()) write_trace(*region, recorded.trace);
    return region;
  };
  // Who runs the operators computes sizes as eager does; only their arguments and the guards need
  // expressions.
  auto resolve = [&](const std::string& why) {
    if (!sizes.any() || !bind_sizes(recorded, sizes))
      sizes.give_up(recorded.tape, recorded.number_sizes, why);
    for (record::Entry& entry : recorded.tape.entries)
      for (record::Arg& arg : entry.args)
        for (Sym& s : arg.syms) s = sizes.resolve(s);
  };
  auto replayed = [&](const std::string& why, bool fallback) {
    resolve(why);
    auto region = std::make_shared<run::Region>(std::move(recorded.tape), std::move(recorded.wanted), why,
                                                std::move(recorded.constants), sizes.open());
    region->facts.fallback = fallback;
    if (fallback) log("perf_hints", recorded.name + ": a region runs eager's operators, because " + why);
    return finished(std::move(region));
  };
  if (log_wanted("graph_code"))
    log("graph_code", "recorded in " + recorded.name + "\n" + print(recorded.tape));
  if (recorded.trace.wanted()) recorded.trace.write("1_recorded.txt", print(recorded.tape));
  if (other) {
    resolve("the backend is somebody else's");
    return finished(other(recorded, sizes.open()));
  }
  if (recorded.road == Road::replay) return replayed("the backend is eager", false);
  const bool gradients = needs_gradients(recorded.tape);
  if (std::string why = obstacle(recorded); !why.empty() && sizes.any_data()) throw EndsAtFoundSizes(why);
  if (std::string why = obstacle(recorded); !why.empty()) return replayed(why, !gradients);

  GiveMemoryBack at_the_end;
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    Stages stages;
    try {
      auto region = build(recorded, sizes, stages);
      region->facts.stage_seconds = std::move(stages.seconds);
      Stats::get().compile_nanoseconds +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin)
              .count();
      return finished(std::move(region));
    } catch (const SizeDemand& demand) {
      const std::string where = (demand.where.empty() ? "the " + stages.name() + " stage" : demand.where) +
                                " (" + demand.what() + ")";
      if (sizes.solve(demand, where)) continue;
      if (sizes.any_data()) throw EndsAtFoundSizes(where);
      if (!sizes.asks_early(demand)) throw;
      return replayed("a random number would have to be known when compiling: " + where, true);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Unsupported) throw;
      if (sizes.any_data()) throw EndsAtFoundSizes(error.what());
      return replayed(error.what(), true);
    }
  }
}

}  // namespace bolt

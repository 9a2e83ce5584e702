// run/finish.cpp
#include "run/finish.h"

#include <utility>

#include "run/replayed.h"

namespace bolt::run {
namespace {

/// The last files of a trace: what is run, or why nothing was compiled.
void write_trace(const Runnable& region, const Trace& trace) {
  std::string report =
      region.facts.why_replayed.empty() ? "" : "eager's operators run: " + region.facts.why_replayed + "\n";
  for (const std::string& why : region.facts.sizes_given_up) report += why + "\n";
  for (const auto& [stage, seconds] : region.facts.stage_seconds)
    report += stage + ": " + std::to_string(seconds * 1e3) + " ms\n";
  trace.write("5_report.txt", report);
  const auto [graph, plan] = region.texts();
  if (!graph.empty()) trace.write("3_optimized_graph.txt", graph);
  if (!plan.empty()) trace.write("4_plan.txt", plan);
}

}  // namespace

void settle(Recorded& recorded, lower::Sizes& sizes, const std::string& why) {
  lower::settle(recorded.tape, recorded.wanted, recorded.for_lowering(), recorded.number_sizes, why, sizes);
}

std::shared_ptr<Runnable> make_replayed(Recorded& recorded, lower::Sizes& sizes, const std::string& why) {
  settle(recorded, sizes, why);
  return std::make_shared<Replayed>(std::move(recorded.tape), std::move(recorded.wanted), why,
                                    std::move(recorded.constants), sizes.open());
}

std::shared_ptr<Runnable> given_up(std::shared_ptr<Runnable> replayed, const std::string& name) {
  replayed->facts.fallback = true;
  log("perf_hints", name + ": a region runs eager's operators, because " + replayed->facts.why_replayed);
  return replayed;
}

std::shared_ptr<Runnable> finished(std::shared_ptr<Runnable> region, const Recorded& recorded,
                                   const lower::Sizes& sizes) {
  lower::Settled settled = lower::settled(sizes, recorded.number_sizes);
  region->size_symbols = std::move(settled.symbols);
  region->size_facts = std::move(settled.facts);
  region->number_sizes = std::move(settled.computed);
  region->check_data_sizes(settled.about_data);
  if (recorded.wishes.launch_at_once) region->launch_at_once(recorded.name);
  region->note_passes_in(recorded.double_backward);
  region->facts.sizes_given_up = sizes.given_up();
  for (const std::string& why : region->facts.sizes_given_up) log("dynamic", recorded.name + ": " + why);
  if (recorded.trace.wanted()) write_trace(*region, recorded.trace);
  return region;
}

}  // namespace bolt::run

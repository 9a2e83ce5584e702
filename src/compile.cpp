// compile.cpp
// Recorded -> Runnable: the map. Each line is a stage; each stage is a folder.
//
//   record    what is wanted of the tape, and whether it may be compiled
//   lower     Tape -> Graph                                  lower::functionalize
//   graph     passes, equal layers once                      loops::from_graph
//   loops     Graph -> Plan: kernels, calls, memory          loops::from_graph
//   codegen   kernels -> machine code                        device::PlanCode
//   run       all of it -> what a call runs                  run::Compiled, Replayed, Trial, Foreign
//
// A stage that cannot go on with sizes as they are throws SizeDemand: it is answered here, by giving symbols
// up, and the stages begin again.
#include "compile.h"

#include <chrono>
#include <optional>
#include <utility>

#include "autograd/cuts.h"
#include "autograd/early_cuts.h"
#include "autograd/gradients.h"
#include "autograd/step.h"
#include "device/device.h"
#include "graph/verify.h"
#include "lower/attention_masks.h"
#include "lower/functionalize.h"
#include "lower/settle.h"
#include "record/recorder.h"
#include "run/choose_ways.h"
#include "run/foreign.h"
#include "run/functional.h"
#include "run/make_chain.h"
#include "run/make_compiled.h"
#include "run/make_trained.h"
#include "run/replayed.h"
#include "run/step.h"
#include "run/trial.h"
#include "support/error.h"
#include "support/log.h"
#include "support/stages.h"
#include "support/stats.h"

namespace bolt {
namespace {

using Made = std::shared_ptr<run::Runnable>;

/// For choosing among ways to compute the same: by itself, and where the user asked for it.
constexpr double kSecondsOfMeasuring = 0.3, kSecondsOfTuning = 5;

class Compilation {
 public:
  explicit Compilation(Recorded recorded)
      : r_(std::move(recorded)), sizes_(r_.tape, r_.dynamic, r_.number_symbols, std::move(r_.size_facts)) {
    sizes_.not_guessed = std::move(r_.not_guessed);
  }

  Made run(const Other& other) {
    note("graph_code", "1_recorded.txt", "recorded in " + r_.name + "\n", [&] { return print(r_.tape); });
    if (other) {
      settle("the backend is somebody else's");
      return finished(other(r_, sizes_.open()));
    }
    if (r_.road == Road::replay) return replayed("the backend is eager", false);
    if (const std::string why = obstacle(); !why.empty()) {
      if (sizes_.any_data()) throw EndsAtFoundSizes(why);
      return replayed(why, true);
    }
    r_.budget.one_block = r_.launch_at_once;
    if (autograd::has_gradients(r_.tape)) return step();
    return record::needs_gradients(r_.tape) ? trained() : compiled();
  }

 private:
  /// Why the stages cannot be begun; "": they can.
  std::string obstacle() const {
    if (!r_.obstacle.empty()) return r_.obstacle;
    for (const record::TensorInfo& t : r_.tape.tensors)
      if (std::string why = device::why_not(t.device); !why.empty()) return why;
    return "";
  }

  /// With the gradients, by a program for each direction.
  Made trained() {
    if (sizes_.any_data()) throw EndsAtFoundSizes("gradients are needed");
    const GiveMemoryBack at_the_end;
    const auto begin = std::chrono::steady_clock::now();
    lower::OverInputs over_inputs(r_.tape, r_.wanted, {r_.is_param, r_.constants}, r_.number_sizes, "",
                                  sizes_);
    sizes_ = over_inputs.anew({});
    Stages stages;
    try {
      Made region = differentiated(over_inputs, stages);
      region->facts.stage_seconds = std::move(stages.seconds);
      Stats::get().compile_nanoseconds += (std::chrono::steady_clock::now() - begin).count();
      return finished(std::move(region));
    } catch (const run::FloatDiffers& why) {
      return replayed(why.what(), false);
    } catch (const SizeDemand& demand) {
      return replayed(demand.what(), true);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Unsupported) throw;
      return replayed(error.what(), true);
    }
  }

  /// What `make` makes of the tape without the masks of attention that hide nothing of note, or else of it
  /// all.
  template <typename Make>
  auto without_masks(lower::Sizes sizes, const Make& make) {
    if (const std::optional<record::Tape> unmasked = lower::without_masks(r_.tape, sizes)) {
      try {
        return make(*unmasked);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Unsupported) throw;
        log("perf_hints", r_.name + ": attention keeps masks that hide nothing, because " + error.what());
      }
    }
    return make(r_.tape);
  }

  Made differentiated(lower::OverInputs& over_inputs, Stages& stages) {
    return without_masks(over_inputs.anew({}),
                         [&](const record::Tape& tape) { return differentiated(tape, over_inputs, stages); });
  }

  Made differentiated(const record::Tape& tape, lower::OverInputs& over_inputs, Stages& stages) {
    const std::vector<size_t> cuts = autograd::cuts(tape, r_.wanted);
    std::vector<size_t> more = autograd::early_cuts(tape, r_.is_awaited);
    if (more.empty()) return in_pieces(tape, cuts, over_inputs, stages);
    more.insert(more.end(), cuts.begin(), cuts.end());
    std::ranges::sort(more);
    more.erase(std::unique(more.begin(), more.end()), more.end());
    try {
      return in_pieces(tape, more, over_inputs, stages);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Unsupported) throw;
      return in_pieces(tape, cuts, over_inputs, stages);
    }
  }

  Made in_pieces(const record::Tape& tape, const std::vector<size_t>& cuts, lower::OverInputs& over_inputs,
                 Stages& stages) {
    // Where they cannot be made, nothing holds of what was found out of sizes.
    lower::Sizes of_parts = over_inputs.anew({});
    Made region;
    if (cuts.empty())
      region = run::make_trained(tape, r_.wanted, r_.constants, r_.is_param, r_.budget, over_inputs, of_parts,
                                 r_.name, r_.trace, stages);
    else
      region = run::make_chain(tape, r_.wanted, cuts, r_.constants, r_.is_param, r_.budget, over_inputs,
                               of_parts, r_.name, r_.trace, stages);
    sizes_ = std::move(of_parts);
    return region;
  }

  /// With a backward pass that is part of it: one program, without a graph of autograd's.
  Made step() {
    if (sizes_.any_data()) throw EndsAtFoundSizes("gradients are needed");
    for (const SymbolRow& s : sizes_.open())  // numbers may differ: none that is differentiated rests on one
      if (s.from != SymbolRow::From::number)
        return replayed("gradients are needed, and sizes differ between calls", false);
    autograd::WholeStep step;
    try {
      step = without_masks(
          sizes_, [&](const record::Tape& tape) { return autograd::make_step(tape, r_.wanted, r_.budget); });
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Unsupported) throw;
      return replayed(error.what(), true);
    }
    note("aot_joint_graph", "1_step.txt", "", [&] { return autograd::print(step); });
    record::Tape run = std::exchange(r_.tape, std::move(step.tape));
    std::vector<record::TensorId> wanted = std::exchange(r_.wanted, std::move(step.wanted));
    for (size_t i : step.leaves)
      r_.is_param[i] = false;  // every call changes it: nothing is computed beforehand
    is_step_ = true;
    Made program = compiled();
    return std::make_shared<run::WholeStep>(std::move(run), std::move(wanted), std::move(step.used_up),
                                            std::move(step.leaves), std::move(program));
  }

  Made compiled() {
    const GiveMemoryBack at_the_end;
    const auto begin = std::chrono::steady_clock::now();
    while (true) {
      Stages stages;
      try {
        Made region = stages_in_order(stages);
        region->facts.stage_seconds = std::move(stages.seconds);
        Stats::get().compile_nanoseconds += (std::chrono::steady_clock::now() - begin).count();
        return finished(std::move(region));
      } catch (const SizeDemand& demand) {
        const std::string where = (demand.where.empty() ? "the " + stages.name() + " stage" : demand.where) +
                                  " (" + demand.what() + ")";
        if (sizes_.solve(demand, where)) continue;
        if (sizes_.any_data()) throw EndsAtFoundSizes(where);
        if (!sizes_.asks_early(demand)) throw;
        return replayed("a random number would have to be known when compiling: " + where, true);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::Unsupported) throw;
        if (sizes_.any_data()) throw EndsAtFoundSizes(error.what());
        return replayed(error.what(), true);
      }
    }
  }

  Made stages_in_order(Stages& stages) {
    stages.enter("functionalize");
    auto lowered =
        lower::functionalize(r_.tape, r_.wanted, {r_.is_param, r_.constants, r_.addresses}, sizes_);
    note("aot_graphs", "2_graph.txt", "", [&] { return graph::print(*lowered.graph); });
    if (r_.road == Road::functional) return functional(std::move(lowered));
    const bool tried = r_.measured && !sizes_.any_data();
    loops::PlanOptions options = device::plan_options();
    options.bytes_apart = r_.budget.one_block ? 0 : run::kBytesApart;
    if (!is_step_) options.apart_on = device::hands_out_memory;
    if (r_.measured || r_.tuned)
      options.measuring =
          std::make_shared<cache::Allowance>(r_.tuned ? kSecondsOfTuning : kSecondsOfMeasuring);
    options.tuned = r_.tuned;
    const auto merged = std::make_shared<std::vector<std::string>>();
    if (r_.tuned) options.merges = run::measured_merges(options, merged, r_.name);
    auto program = run::make_adapting(std::move(lowered), r_.tape, r_.wanted, sizes_.open(),
                                      sizes_.any_data(), tried, r_.name, options, stages);
    program->facts.choices.insert(program->facts.choices.end(), merged->begin(), merged->end());
    if (!tried) return program;
    return run::make_trial(std::move(program), {r_.is_param, r_.constants}, r_.number_sizes, sizes_, r_.name);
  }

  /// backend="aot_eager".
  Made functional(lower::Lowered lowered) {
    graph::verify(*lowered.graph);
    std::string text = graph::print(*lowered.graph);
    auto function =
        run::run_functional(std::move(lowered), r_.wanted.size(), run::Attempts(r_.tape), sizes_.open());
    auto region = std::make_shared<run::Foreign>(std::move(r_.tape), std::move(r_.wanted),
                                                 std::move(function), sizes_.open());
    region->facts.functional_text = std::move(text);
    return region;
  }

  Made replayed(const std::string& why, bool fallback) {
    settle(why);
    auto region = std::make_shared<run::Replayed>(std::move(r_.tape), std::move(r_.wanted), why,
                                                  std::move(r_.constants), sizes_.open());
    region->facts.fallback = fallback;
    if (fallback) log("perf_hints", r_.name + ": a region runs eager's operators, because " + why);
    return finished(std::move(region));
  }

  void settle(const std::string& why) {
    lower::settle(r_.tape, r_.wanted, {r_.is_param, r_.constants}, r_.number_sizes, why, sizes_);
  }

  /// What guards and reports are told of the region.
  Made finished(Made region) {
    lower::Settled settled = lower::settled(sizes_, r_.number_sizes);
    region->size_symbols = std::move(settled.symbols);
    region->size_facts = std::move(settled.facts);
    region->number_sizes = std::move(settled.computed);
    region->check_data_sizes(settled.about_data);
    if (r_.launch_at_once) region->launch_at_once(r_.name);
    region->facts.sizes_given_up = sizes_.given_up();
    for (const std::string& why : region->facts.sizes_given_up) log("dynamic", r_.name + ": " + why);
    if (r_.trace.wanted()) region->write_trace(r_.trace);
    return region;
  }

  template <typename Text>
  void note(const char* log_name, const char* file, const std::string& head, const Text& text) const {
    if (log_wanted(log_name)) log(log_name, head + text());
    if (r_.trace.wanted()) r_.trace.write(file, text());
  }

  Recorded r_;
  lower::Sizes sizes_;
  bool is_step_ = false;  ///< the tape has been made that of a whole step
};

}  // namespace

std::shared_ptr<run::Runnable> compile(Recorded recorded, const Other& other) {
  return Compilation(std::move(recorded)).run(other);
}

}  // namespace bolt

// compile.cpp
// Recorded -> Runnable: the map. Each line is a stage; each stage is a folder.
//
//   record    what is wanted of the tape, and whether it may be compiled
//   autograd  where gradients are needed: the tapes of both directions, or of a whole step
//   lower     Tape -> Graph                                  lower::functionalize
//   graph     passes, equal layers once                      loops::from_graph
//   loops     Graph -> Plan: kernels, calls, memory          loops::from_graph
//   codegen   kernels -> machine code                        device::PlanCode
//   run       all of it -> what a call runs                  run::make_*
//
// What cannot go on with sizes as they are throws SizeDemand: symbols are given up, the stages begin again.
#include "compile.h"

#include <chrono>
#include <utility>

#include "autograd/cuts.h"
#include "autograd/gradients.h"
#include "autograd/joint.h"
#include "device/device.h"
#include "record/text.h"
#include "run/finish.h"
#include "run/functional.h"
#include "run/make_compiled.h"
#include "run/trained/make_differentiated.h"
#include "run/trained/make_step.h"
#include "support/stats.h"

namespace bolt {
namespace {

using Made = std::shared_ptr<run::Runnable>;

class RegionCompilation {
 public:
  explicit RegionCompilation(run::Recorded recorded)
      : r_(std::move(recorded)),
        found_(r_),
        sizes_(r_.tape, r_.dynamic, r_.number_symbols, std::move(r_.size_facts)) {
    sizes_.not_guessed = std::move(r_.not_guessed);
  }

  Made run(const Other& other) {
    r_.note("graph_code", "1_recorded.txt", "recorded in " + r_.name + "\n",
            [&] { return print(r_.tape, {r_.name, r_.wanted, r_.is_param, {}, r_.dynamic, {}, {}, {}}); });
    if (other) {
      settle(r_, sizes_, "the backend is somebody else's");
      return finished(other(r_, sizes_.open()), r_, sizes_);
    }
    if (r_.road == run::Road::replay) return replayed("the backend is eager");
    if (const std::string why = r_.obstacle.empty() ? device::why_not(r_.tape) : r_.obstacle; !why.empty())
      return given_up(why);
    if (!found_.needs_gradients(sizes_)) return compiled();
    return autograd::has_gradients(r_.tape) ? whole_step() : differentiated();
  }

 private:
  /// With the gradients, by a program for each direction.
  Made differentiated() {
    Stages stages;
    try {
      lower::OverInputs over_inputs(r_.tape, r_.wanted, r_.for_lowering(), r_.number_sizes, "", sizes_);
      sizes_ = over_inputs.anew({});
      return timed(make_differentiated(r_, over_inputs, sizes_, stages), stages);
    } catch (const run::FloatDiffers& why) {
      return replayed(why.what());
    } catch (const SizeDemand& demand) {
      return given_up(demand.what());
    } catch (const Unsupported& error) {
      return given_up(error.what());
    }
  }

  /// With a backward pass that is part of it: one program, without a graph of autograd's; and what gradients
  /// are needed of behind it, in pieces of their own.
  Made whole_step() {
    for (const SymbolRow& s : sizes_.open())  // numbers may differ: none that is differentiated rests on one
      if (s.from != SymbolRow::From::number)
        return replayed("gradients are needed, and sizes differ between calls");
    run::StepOf step;
    try {
      step = begin_step(r_, sizes_);
    } catch (const autograd::NotFollowed& error) {
      found_.end_if_any(sizes_, error.what());
      if (r_.may_end_before_backward) throw EndsBeforeBackward(error.what());
      return given_up(error.what());
    } catch (const Unsupported& error) {
      const auto cuts = autograd::cuts(r_.tape, r_.wanted, run::made_of_numbers(r_.constants));
      return cuts.places.empty() ? given_up(error.what()) : differentiated();
    }
    return step(compiled());
  }

  Made compiled() {
    while (true) {
      Stages stages;
      try {
        return timed(stages_in_order(stages), stages);
      } catch (const SizeDemand& demand) {
        const std::string where = stages.where(demand);
        if (sizes_.solve(demand, where)) continue;
        found_.end_if_any(sizes_, where);
        if (!sizes_.asks_early(demand)) throw;
        return given_up("a random number would have to be known when compiling: " + where);
      } catch (const Unsupported& error) {
        return given_up(error.what());
      }
    }
  }

  Made stages_in_order(Stages& stages) {
    stages.enter("functionalize");
    auto lowered = lower::functionalize(r_.tape, r_.wanted, r_.for_lowering(), sizes_);
    r_.note("aot_graphs", "2_graph.txt", "", [&] { return graph::print(*lowered.graph); });
    if (r_.road == run::Road::functional) return make_functional(std::move(lowered), r_, sizes_.open());
    return run::make_region(std::move(lowered), r_, sizes_, stages);
  }

  Made replayed(const std::string& why) {
    found_.end_if_any(sizes_, why);
    return finished(make_replayed(r_, sizes_, why), r_, sizes_);
  }
  Made given_up(const std::string& why) { return run::given_up(replayed(why), r_.name); }

  Made timed(Made region, Stages& stages) {
    region->facts.stage_seconds = std::move(stages.seconds);
    Stats::get().compile_nanoseconds += (std::chrono::steady_clock::now() - begin_).count();
    return finished(std::move(region), r_, sizes_);
  }

  run::Recorded r_;
  const run::FoundSizes found_;
  lower::Sizes sizes_;
  const GiveMemoryBack at_the_end_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

std::shared_ptr<run::Runnable> compile(run::Recorded recorded, const Other& other) {
  return RegionCompilation(std::move(recorded)).run(other);
}

}  // namespace bolt

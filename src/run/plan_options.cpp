// run/plan_options.cpp
#include "run/plan_options.h"

#include "device/device.h"
#include "run/choose_ways.h"
#include "run/make_compiled.h"

namespace bolt::run {
namespace {

/// For choosing among ways to compute the same: by itself, and where the user asked for it.
constexpr double kSecondsOfMeasuring = 0.3, kSecondsOfTuning = 5;

}  // namespace

loops::PlanOptions plan_options(const Recorded& recorded, bool is_step, const Choices& choices) {
  loops::PlanOptions options = device::options_of_devices();
  options.bytes_apart = recorded.budget.one_block ? 0 : kBytesApart;
  if (!is_step) options.apart_on = device::hands_out_memory;
  if (recorded.measured || recorded.tuned)
    options.measuring =
        std::make_shared<cache::Allowance>(recorded.tuned ? kSecondsOfTuning : kSecondsOfMeasuring);
  options.tuned = recorded.tuned;
  if (recorded.tuned) options.merges = measured_merges(options, choices, recorded.name);
  return options;
}

}  // namespace bolt::run

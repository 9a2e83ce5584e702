// run/plan_options.cpp
#include "run/plan_options.h"

#include "device/device.h"
#include "run/choose_ways.h"

namespace bolt::run {
namespace {

/// For choosing among ways to compute the same: by itself, and where the user asked for it.
constexpr double kSecondsOfMeasuring = 0.3, kSecondsOfTuning = 5;

/// loops::PlanOptions::bytes_apart. Kernels on so much take longer than it takes to get the memory.
constexpr int64_t kBytesApart = 2 << 20;

/// Attention rounds halves between its two products, as a library does it: no code of ours in its place.
void leave_attention(loops::PlanOptions& options) {
  options.generates = [generates = options.generates](const loops::PlannedContraction& call) {
    const bool of_halves = call.node.op == graph::Op::sdpa && is_half(call.node.out()->type.dtype);
    return of_halves || !generates ? std::nullopt : generates(call);
  };
}

loops::PlanOptions options_for(const Wishes& wishes) {
  loops::PlanOptions options = device::options_of_devices();
  options.bytes_apart = wishes.launch_at_once ? 0 : kBytesApart;
  options.rounds_as_eager = wishes.rounds_as_eager;
  if (wishes.rounds_as_eager) leave_attention(options);
  return options;
}

}  // namespace

loops::PlanOptions plan_options(const Recorded& recorded, const Choices& choices) {
  loops::PlanOptions options = options_for(recorded.wishes);
  if (!recorded.is_step) options.apart_on = device::hands_out_memory;
  if (recorded.measured || recorded.tuned)
    options.measuring =
        std::make_shared<cache::Allowance>(recorded.tuned ? kSecondsOfTuning : kSecondsOfMeasuring);
  options.tuned = recorded.tuned;
  if (recorded.tuned) options.merges = measured_merges(options, choices, recorded.name);
  return options;
}

loops::PlanOptions plan_options_of_part(const Wishes& wishes) { return options_for(wishes); }

}  // namespace bolt::run

// run/trained/partial_passes.cpp
#include "run/trained/partial_passes.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "autograd/some_tangents.h"
#include "run/trained/make_part.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/size_demand.h"

namespace bolt::run {
namespace {

constexpr size_t kMostCompiled = 8;

/// What the whole part does not take for granted as well: that is a guard of the region.
std::vector<SizeFact> facts_alone(const lower::Sizes& sizes, const TrainedSizes::Parts& parts) {
  const std::vector<SizeFact> known = parts.backward.facts();
  std::vector<SizeFact> out;
  for (SizeFact f : sizes.facts()) {
    if (std::ranges::find(known, f) != known.end()) continue;
    f.a = over_region(f.a, sizes, parts.backwards, parts.region);
    f.b = over_region(f.b, sizes, parts.backwards, parts.region);
    if (f.a != f.b) out.push_back(std::move(f));
  }
  return out;
}

/// Not where a stage cannot go on: replaying it does the same. Only where failures of ours are to be seen is
/// one of them raised in the middle of a backward pass.
void compile_pass(PartialPasses::Program& program, const TrainedSizes* sizes_of_region,
                  const Wishes& wishes) {
  try {
    const record::Tape& tape = program.tape;
    lower::Sizes sizes = sizes_of_region
                             ? sizes_of_region->parts().backward
                             : lower::Sizes(tape, std::vector<uint64_t>(tape.inputs.size()), {}, {});
    Stages stages;
    auto made = make_part(tape, program.wanted, {}, sizes, wishes, stages,
                          [](const lower::Lowered&) { return KeptOutputs(); });
    made->finish_code("backward of some results");
    if (sizes_of_region) {
      program.symbols = sizes_of_region->parts().over_region(made->symbols(), sizes);
      program.facts = facts_alone(sizes, sizes_of_region->parts());
    }
    program.compiled = std::move(made);
  } catch (const SizeDemand&) {
  } catch (const std::exception& error) {
    if (!dynamic_cast<const Unsupported*>(&error) && knob_bool("TORCHBOLT_STRICT")) throw;
  }
}

}  // namespace

std::shared_ptr<const PartialPasses::Program> PartialPasses::of(
    const record::Tape& backward, const std::vector<autograd::Inner>& inner, const Kind& kind,
    const std::vector<record::TensorId>& wanted, const TrainedSizes* sizes, const Wishes& wishes) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = known_.try_emplace(kind);
  if (!is_new) return at->second;
  std::optional<record::Tape> arriving;
  if (!inner.empty()) arriving = autograd::with_inner(backward, kind.given.size(), inner, kind.ways);
  auto tape = autograd::with_some_tangents(arriving ? *arriving : backward, wanted, kind.given);
  if (!tape) tape = std::move(arriving);
  if (!tape) return nullptr;
  auto program = std::make_shared<Program>(Program{std::move(*tape), wanted, nullptr, {}, {}});
  if (known_.size() <= kMostCompiled) compile_pass(*program, sizes, wishes);
  if (program->compiled && !name_.empty()) program->compiled->launch_at_once(name_);
  at->second = std::move(program);
  return at->second;
}

}  // namespace bolt::run

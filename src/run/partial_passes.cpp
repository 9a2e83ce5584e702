// run/partial_passes.cpp
#include "run/partial_passes.h"

#include <exception>
#include <unordered_map>
#include <utility>

#include "autograd/some_tangents.h"
#include "lower/functionalize.h"
#include "record/copy.h"
#include "run/make_compiled.h"
#include "run/plan_options.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/size_demand.h"

namespace bolt::run {
namespace {

constexpr size_t kMostCompiled = 8;

/// Null where a stage cannot go on: replaying it does the same. Only where failures of ours are to be seen is
/// one of them raised in the middle of a backward pass.
std::shared_ptr<Compiled> compiled(const PartialPasses::Program& program, const autograd::Budget& budget) {
  try {
    record::Tape tape = record::copy_of(program.tape);
    auto wanted = program.wanted;
    lower::Sizes sizes(tape, std::vector<uint64_t>(tape.inputs.size()), {}, {});
    const std::vector<bool> no_parameters(tape.inputs.size(), false);
    const std::unordered_map<int, at::Tensor> no_constants;
    Stages stages;
    stages.enter("functionalize");
    lower::Lowered lowered = lower::functionalize(tape, wanted, {no_parameters, no_constants}, sizes);
    auto made = begin_compiled(std::move(lowered), tape, wanted, sizes.open(), plan_options_of_part(budget),
                               stages, {});
    made->finish_code("backward of some results");
    return made;
  } catch (const SizeDemand&) {
    return nullptr;
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const bool unsupported = known && known->kind() == ErrorKind::Unsupported;
    if (!unsupported && knob_bool("TORCHBOLT_STRICT")) throw;
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<const PartialPasses::Program> PartialPasses::of(const Compiled& backward,
                                                                const std::vector<bool>& given,
                                                                const std::vector<record::TensorId>& wanted,
                                                                bool sizes_differ,
                                                                const autograd::Budget& budget) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = known_.try_emplace(given);
  if (!is_new) return at->second;
  auto tape = autograd::with_some_tangents(backward.tape(), wanted, given);
  if (!tape) return nullptr;
  auto program = std::make_shared<Program>(Program{std::move(*tape), wanted, nullptr});
  if (!sizes_differ && known_.size() <= kMostCompiled) program->compiled = compiled(*program, budget);
  if (program->compiled && !name_.empty()) program->compiled->launch_at_once(name_);
  at->second = std::move(program);
  return at->second;
}

}  // namespace bolt::run

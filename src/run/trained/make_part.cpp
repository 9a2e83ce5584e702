// run/trained/make_part.cpp
#include "run/trained/make_part.h"

#include <utility>

#include "record/copy.h"
#include "run/plan_options.h"
#include "support/size_demand.h"

namespace bolt::run {
namespace {

std::shared_ptr<Compiled> stages_in_order(const record::Tape& tape, std::vector<record::TensorId> wanted,
                                          const std::unordered_map<int, at::Tensor>& constants,
                                          lower::Sizes& sizes, const Wishes& wishes, Stages& stages,
                                          const LookAtLowered& look) {
  stages.enter("functionalize");
  record::Tape copy = record::copy_of(tape);
  const std::vector<bool> no_parameters(tape.inputs.size(), false);
  lower::Lowered lowered =
      lower::functionalize(copy, wanted, {no_parameters, constants, {}, wishes.rounds_as_eager}, sizes);
  const KeptOutputs kept = look(lowered);
  return begin_compiled(std::move(lowered), copy, wanted, sizes.open(), plan_options_of_part(wishes), stages,
                        kept);
}

}  // namespace

std::shared_ptr<Compiled> make_part(const record::Tape& tape, const std::vector<record::TensorId>& wanted,
                                    const std::unordered_map<int, at::Tensor>& constants, lower::Sizes& sizes,
                                    const Wishes& wishes, Stages& stages, const LookAtLowered& look) {
  while (true) {
    try {
      return stages_in_order(tape, wanted, constants, sizes, wishes, stages, look);
    } catch (const SizeDemand& demand) {
      if (!sizes.solve(demand, stages.where(demand))) throw;
    }
  }
}

}  // namespace bolt::run

// run/trained/make_step.cpp
#include "run/trained/make_step.h"

#include <utility>
#include <vector>

#include "lower/attention_masks.h"
#include "record/recorder.h"
#include "run/trained/step.h"

namespace bolt::run {

StepOf begin_step(Recorded& recorded, const lower::Sizes& sizes) {
  autograd::StepTape step =
      lower::rather_unmasked(recorded.tape, sizes, recorded.name, [&](const record::Tape& tape) {
        return autograd::make_step(tape, recorded.wanted, recorded.wishes.budget,
                                   made_of_numbers(recorded.constants));
      });
  recorded.note("aot_joint_graph", "1_step.txt", "", [&] { return autograd::print(step); });
  for (size_t i : step.leaves)
    recorded.is_param[i] = false;  // every call changes it: nothing is computed beforehand
  recorded.is_step = true;
  return begin_step(recorded.tape, recorded.wanted, std::move(step));
}

StepOf begin_step(record::Tape& tape, std::vector<record::TensorId>& wanted, autograd::StepTape step) {
  auto run = std::make_shared<record::Tape>(std::exchange(tape, std::move(step.tape)));
  return [run = std::move(run), given = std::exchange(wanted, std::move(step.wanted)),
          used_up = std::move(step.used_up), leaves_made = std::move(step.leaves_made),
          leaves = std::move(step.leaves)](std::shared_ptr<Runnable> program) {
    return std::make_shared<WholeStep>(std::move(*run), given, used_up, leaves_made, leaves,
                                       std::move(program));
  };
}

}  // namespace bolt::run

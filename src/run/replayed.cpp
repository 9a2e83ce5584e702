// run/replayed.cpp
#include "run/replayed.h"

#include <ATen/ops/clone.h>

#include "guard/handed_out.h"
#include "lower/certain_calls.h"
#include "record/recorder.h"

namespace bolt::run {

Replayed::Replayed(record::Tape tape, std::vector<record::TensorId> wanted, std::string why,
                   std::unordered_map<int, at::Tensor> constants, SymbolTable symbols)
    : Runnable(std::move(tape), std::move(wanted), std::move(symbols)),
      visible_writes_(tape_),
      // Of other sizes some may not go together.
      certain_from_(symbols_.empty() ? lower::certain_from(tape_) : tape_.entries.size()),
      constants_(std::move(constants)) {
  facts.why_replayed = std::move(why);
}

std::vector<at::Tensor> Replayed::call(const std::vector<at::Tensor>& inputs,
                                       const std::vector<int64_t>& values,
                                       record::CallGenerators generators) {
  if (constants_.empty()) return replay(inputs, values, std::move(generators));
  // Each run gets its own copy: the user may write to what torch.tensor(...) gave.
  std::vector<at::Tensor> all = inputs;
  for (const auto& [input, value] : constants_) all[input] = value.clone();
  return replay(all, values, std::move(generators));
}

std::vector<at::Tensor> Replayed::replay(const std::vector<at::Tensor>& inputs,
                                         const std::vector<int64_t>& values,
                                         record::CallGenerators generators) const {
  const Evaluate value{symbols_, values};
  Undo undo(visible_writes_, inputs, certain_from_);
  auto before = [&](size_t entry, const torch::jit::Stack& arguments) { undo.before(entry, arguments); };
  auto out = attempt_(
      generators, [&] { return record::replay(tape_, inputs, wanted_, value, before, generators); },
      [&] { return saves_unseen() && undo.take_back(); });
  for (size_t input : visible_writes_.inputs) guard::note_handed_out(inputs[input]);
  return out;
}

}  // namespace bolt::run

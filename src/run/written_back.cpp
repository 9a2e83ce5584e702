// run/written_back.cpp: see written_back.h.
#include "run/written_back.h"

#include <utility>

namespace bolt::run {

WrittenBack::WrittenBack(record::Tape tape, std::vector<record::TensorId> wanted, std::vector<size_t> inputs,
                         std::shared_ptr<Runnable> program)
    : Runnable(std::move(tape), std::move(wanted), program->symbols()),
      inputs_(std::move(inputs)),
      program_(std::move(program)) {
  can_fail_ = true;
  releases_gil_ = program_->releases_gil();
  const int ops = facts.ops;
  facts = program_->facts;
  facts.ops = ops;
}

std::vector<at::Tensor> WrittenBack::call(const std::vector<at::Tensor>& inputs,
                                          const std::vector<int64_t>& values,
                                          record::CallGenerators generators) {
  // What it keeps of its inputs, for gradients of gradients, must stay what it is.
  std::vector<at::Tensor> given = inputs;
  for (size_t input : inputs_) given[input] = given[input].clone();
  std::vector<at::Tensor> results = program_->run_for(given, values, std::move(generators));
  const size_t wanted = results.size() - inputs_.size();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    at::Tensor input = inputs[inputs_[i]];
    input.copy_(results[wanted + i]);
  }
  results.resize(wanted);
  return results;
}

}  // namespace bolt::run

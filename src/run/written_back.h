// run/written_back.h
// WrittenBack: a region whose program works on copies of inputs that get a history by being written to
// (autograd/set_apart.h). What the copies have become is copied into the inputs where autograd sees it.
#pragma once

#include <memory>
#include <vector>

#include "run/runnable.h"

namespace bolt::run {

class WrittenBack final : public Runnable {
 public:
  /// `tape`, `wanted`: of the run. `program`: gives what is wanted, then a tensor for each of `inputs`.
  WrittenBack(record::Tape tape, std::vector<record::TensorId> wanted, std::vector<size_t> inputs,
              std::shared_ptr<Runnable> program);

  std::vector<int> written_inputs() const override { return program_->written_inputs(); }
  std::string graph_text() const override { return program_->graph_text(); }
  std::string plan_text() const override { return program_->plan_text(); }
  std::vector<StepFacts> costs() const override { return program_->costs(); }
  void launch_at_once(const std::string& name) override { program_->launch_at_once(name); }

 private:
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                               record::CallGenerators generators) override;

  const std::vector<size_t> inputs_;
  const std::shared_ptr<Runnable> program_;
};

}  // namespace bolt::run

// run/trained/step.h
// WholeStep: a region with a backward pass in it, which is part of its program (autograd/step.h).
//
// No graph of autograd's is built by a call: the gradients are outputs like others, or none at all. A result
// that has a history in eager has one here, too: a node that says what eager's says once its saved tensors
// are gone, that the graph cannot be gone through a second time.
//
// All of it happens, or nothing: what raises in the middle (no memory, a label out of range) leaves
// parameters, the optimizer's state and random numbers as they were.
//
// The program calls nobody in between. Where somebody wants to be called (hooks of parameters, hooks for
// saved tensors, anomaly mode), the call is eager's.
#pragma once

#include <memory>
#include <vector>

#include "autograd/step.h"
#include "run/runnable.h"

namespace bolt::run {

class WholeStep final : public Runnable {
 public:
  /// `tape`, `wanted`: of the run. `program`: of the step's tape.
  WholeStep(record::Tape tape, std::vector<record::TensorId> wanted, std::vector<bool> used_up,
            std::vector<bool> leaves_made, std::vector<size_t> leaves, std::shared_ptr<Runnable> program);

  bool is_differentiated() const override { return false; }
  std::vector<int> written_inputs() const override { return program_->written_inputs(); }
  Texts texts() const override { return program_->texts(); }
  std::vector<StepFacts> costs() const override { return program_->costs(); }
  void launch_at_once(const std::string& name) override { program_->launch_at_once(name); }
  std::vector<int> weights() const override { return program_->weights(); }
  void prepare(const std::vector<at::Tensor>& inputs) override { program_->prepare(inputs); }
  bool is_trial() const override { return program_->is_trial(); }
  std::shared_ptr<Runnable> successor() const override;
  void check_data_sizes(const std::vector<SizeFact>& taken_for_granted) override {
    program_->check_data_sizes(taken_for_granted);
  }

 private:
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                               record::CallGenerators generators) override;
  void give_histories(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& results) const;

  const std::vector<bool> used_up_, leaves_made_;  ///< by result
  const std::vector<size_t> leaves_;               ///< of the inputs
  const std::shared_ptr<Runnable> program_;
  const bool any_used_up_;
};

}  // namespace bolt::run

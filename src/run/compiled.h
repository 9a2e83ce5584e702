// run/compiled.h
// Compiled: a region that runs its plan.
//
// Kept between calls, each in a class of its own: the memory of a call, and everything that rests on sizes,
// for the sets of sizes met last (kept_calls.h), and what was computed of the parameters (folds.h). A region
// whose sizes differ between calls gets programs for the sizes that come again and again, made in the
// background.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "run/folds.h"
#include "run/kept_calls.h"
#include "run/recordings.h"
#include "run/runnable.h"

namespace bolt::run {

class Compiled final : public Runnable, public std::enable_shared_from_this<Compiled> {
 public:
  /// `plan.graph` and `lowered` (its graph moved away) must belong together.
  Compiled(record::Tape tape, std::vector<record::TensorId> wanted, lower::Lowered lowered, loops::Plan plan,
           device::PlanCode code, SymbolTable symbols);

  bool is_differentiated() const override { return false; }
  std::vector<int> written_inputs() const override;
  Texts texts() const override;
  std::vector<StepFacts> costs() const override { return p_.costs(); }
  void check_data_sizes(const std::vector<SizeFact>& taken_for_granted) override {
    p_.check_data_sizes(taken_for_granted);
  }

  void launch_at_once(const std::string& name) override;
  std::vector<int> weights() const override;
  void prepare(const std::vector<at::Tensor>& inputs) override;

  /// Before the first call: waits for its code, which is compiled while other parts of its region are
  /// planned. Throws what went wrong. `name`: of the part, for logs.
  void finish_code(const std::string& name);

  // ---- for a part of a region that is differentiated
  const lower::Lowered& lowered() const { return p_.lowered; }
  /// Given the results that are memory of their own, before there are views of them.
  using Tie = std::function<void(std::vector<at::Tensor>& fresh)>;
  std::vector<at::Tensor> run_tied(const std::vector<at::Tensor>& inputs, const Ints& values,
                                   record::CallGenerators generators, const Tie& tie);
  /// Lets go of each input when its last reader has run, once no step is left that eager may have to take the
  /// place of. What fails behind that raises as it would in eager's backward pass, which could not be gone
  /// through a second time either. `values`: of symbols(), whatever the inputs say.
  std::vector<at::Tensor> run_last(std::vector<at::Tensor>& inputs, const Ints& values);

  /// Set for a region whose sizes differ between calls: makes one for the values of symbols() that the caller
  /// meets again and again. Called on the background thread, at most twice; null: it cannot be made.
  std::function<std::shared_ptr<Compiled>(const std::vector<int64_t>& values)> specialize;
  const Prepared& prepared() const { return p_; }
  /// Lets go of the memory that calls leave for the next ones.
  void drop_idle_memory() { kept_.drop_idle_memory(); }

  /// Set for a region that is tried beside eager: makes the same region with less fusion. Null: it cannot be
  /// made, or is the same.
  std::function<std::shared_ptr<Compiled>()> cautious;
  /// Set where something is folded: makes the same region with nothing computed beforehand, for parameters
  /// that keep changing. Called on the background thread, at most once; null: it cannot be made.
  std::function<std::shared_ptr<Compiled>()> unfolded;

 private:
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                               record::CallGenerators generators) override;
  struct Way {
    const Tie* tie = nullptr;
    std::vector<at::Tensor>* let_go = nullptr;  ///< the inputs, where they are not needed afterwards
  };
  std::vector<at::Tensor> run_plan(const std::vector<at::Tensor>& inputs, const Ints& values,
                                   const Ints& sizes, record::CallGenerators generators, Way way);
  /// The outputs of a call that was repeated at once.
  std::optional<std::vector<at::Tensor>> repeat(const std::vector<at::Tensor>& inputs, const Ints& values,
                                                const std::shared_ptr<const Shapes>& shapes,
                                                const std::shared_ptr<const FoldedBuffers>& folded,
                                                const record::CallGenerators& generators);
  void run_steps(Execution& execution, std::vector<at::Tensor>& inputs, Way way, bool& gone) const;
  void count_steps();
  void take_over(const Compiled& from);
  std::shared_ptr<Compiled> for_changing_parameters(const std::vector<at::Tensor>& tape_inputs);
  void make_unfolded();
  std::shared_ptr<Compiled> special_for(const Ints& values, const Ints& sizes);

  Prepared p_;
  std::vector<std::optional<bool>> modes_;  ///< by output: made in inference mode? None: no operator made it
  const size_t final_steps_;                ///< the first of those that no eager takes the place of
  Folds folds_;
  KeptCalls kept_{p_};
  std::string name_;                                                 ///< where calls may be launched at once
  std::unique_ptr<Recordings> recordings_;                           ///< null: they are not
  std::mutex mutex_;                                                 // guards all below
  std::shared_ptr<Compiled> trained_;                                ///< what `unfolded` made
  bool wants_unfolded_ = true;                                       ///< it has not been asked for yet
  std::vector<std::pair<Ints, int>> counts_;                         ///< calls by sizes
  std::vector<std::pair<Ints, std::shared_ptr<Compiled>>> special_;  ///< null: being made
};

}  // namespace bolt::run

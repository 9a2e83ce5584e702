// run/runnable.h
// A region that can be called: tensors in, tensors out.
//
//   Compiled     the plan's steps: our kernels, library calls, ATen's operators (compiled.h)
//   Replayed     the tape, through the dispatcher: exact for gradients, and never lacks a kernel (replayed.h)
//   EagerTrial   another one and a Replayed in turn, until it is known which is faster (eager_trial.h)
//   Foreign      a function that a user's backend made (foreign.h)
//   Trained      two Compiled parts, tied together by nodes of autograd's (trained/trained.h)
//   Chain        several Trained, one after another (trained/chain.h)
//   WholeStep    a Compiled with a backward pass in it (trained/step.h)
//
// Who calls one does not ask which it is. All are given the tape's inputs, the values of the numbers that
// differ between calls, and the generators of this call, and give what was wanted of the tape. All are
// immutable after they are made, apart from caches, and may run on several threads at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lower/functionalize.h"
#include "record/generators.h"
#include "record/tape.h"
#include "run/attempt.h"
#include "run/step_times.h"
#include "support/size_fact.h"

namespace bolt::run {

class DoubleBackward;

class Runnable {
 public:
  /// What happened on the way, for reports.
  struct Facts {
    int ops = 0, kernels = 0, kernels_before_fusion = 0, library_calls = 0, extern_calls = 0;
    int64_t bytes_moved = 0;
    bool compiled = false;
    bool from_cache = false;
    bool fallback = false;  ///< replayed although it was to be compiled
    std::string why_replayed;
    std::string why_no_graph;  ///< why its launches are not given to the device at once, where that was asked
    std::string measured;      ///< what came of it beside eager (eager_trial.h)
    std::string functional_text;              ///< the graph that "aot_eager" runs
    std::vector<std::string> choices;         ///< what was measured when it was made (choose_ways.h)
    std::vector<std::string> sizes_given_up;  ///< symbols that had to become numbers, and why
    std::vector<std::pair<std::string, double>> stage_seconds;

    /// Of another part of the same region.
    void add(const Facts& part);
  };

  virtual ~Runnable();

  /// `inputs` in the order of the tape's inputs (undefined where the tape does not use one); results as
  /// wanted. `numbers`: the values of those symbols. `generators`: found in the place of those that the tape
  /// names. Throws RunEagerly; what an operator raises only where that cannot be taken back.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& numbers = {},
                              record::CallGenerators generators = {});
  /// As run(), with `values` of all of symbols().
  std::vector<at::Tensor> run_for(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                                  record::CallGenerators generators);

  /// Whether run() may throw.
  bool can_fail() const { return can_fail_; }
  /// Whether it may before its results are there: hooks of saved tensors raise later.
  virtual bool forward_can_fail() const { return can_fail_; }
  /// Long enough to let other threads have the interpreter meanwhile.
  bool releases_gil() const { return releases_gil_; }
  /// Are torch's operators called where autograd sees them?
  virtual bool is_differentiated() const { return true; }
  /// Tape inputs whose memory the region writes in a way that no version counter tells.
  virtual std::vector<int> written_inputs() const { return {}; }
  /// Tape inputs that have another history afterwards, since what autograd follows was written to them.
  virtual std::vector<size_t> rewritten() const { return {}; }
  /// Of what is run, as stages print it; "" where there is none.
  struct Texts {
    std::string graph, plan;
  };
  virtual Texts texts() const { return {facts.functional_text, ""}; }
  /// Before the first call: from now on, calls that repeat one before them are given to the device at once,
  /// where that can be done. `name`: of the region, for logs.
  virtual void launch_at_once(const std::string& name);
  /// Before the first call: backward passes over the region tell there of gradients of gradients.
  virtual void note_passes_in(const std::shared_ptr<DoubleBackward>& /*noted*/) {}
  /// Tape inputs that calls find used beforehand, as long as they stay the same tensors (folds.h).
  virtual std::vector<int> weights() const { return {}; }
  /// Before the first call: uses these beforehand. `inputs`: the tape's; others than weights() may be
  /// undefined.
  virtual void prepare(const std::vector<at::Tensor>& /*inputs*/) {}
  /// Of the steps that a call runs, in order.
  virtual std::vector<StepFacts> costs() const { return {}; }
  /// Of one that is a trial (eager_trial.h): has it come to no end yet?
  virtual bool is_trial() const { return false; }
  /// What is to run from now on in its place; null: it itself. It must outlive calls that are under way.
  virtual std::shared_ptr<Runnable> successor() const { return nullptr; }
  /// What was taken for granted about sizes that are data: what runs must check it.
  virtual void check_data_sizes(const std::vector<SizeFact>& taken_for_granted);

  const record::Tape& tape() const { return tape_; }
  const std::vector<record::TensorId>& wanted() const { return wanted_; }
  /// What differs between calls. Symbols of numbers come in the order in which run() takes their values.
  const SymbolTable& symbols() const { return symbols_; }

  /// What compiling found out beside the program.
  void take_facts(const Runnable& other);

  Facts facts;
  /// The sizes of inputs that were symbols when compiling began, and what must hold of them, for guards.
  SymbolTable size_symbols;
  std::vector<SizeFact> size_facts;
  Syms number_sizes;  ///< what Recorded::number_sizes came to, over those symbols

 protected:
  Runnable(record::Tape tape, std::vector<record::TensorId> wanted, SymbolTable symbols);
  /// `values`: of symbols().
  virtual std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs,
                                       const std::vector<int64_t>& values,
                                       record::CallGenerators generators) = 0;

  const record::Tape tape_;
  const std::vector<record::TensorId> wanted_;
  const SymbolTable symbols_;  // of sizes and numbers
  const Attempts attempt_{tape_};
  bool releases_gil_ = true, can_fail_ = true;

 private:
  std::vector<int64_t> values_of(const std::vector<at::Tensor>& tape_inputs,
                                 const std::vector<int64_t>& numbers) const;
};

}  // namespace bolt::run

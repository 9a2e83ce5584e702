// run/eager_trial.h
// EagerTrial: a program is measured beside eager in its first calls, so that no region stays slower.
//
// Each call is answered once, by one of the two, and nothing is run for the clock alone. First the program
// has a turn, then eager: a call that warms up and three that count, of which the best is compared, since
// whatever else the machine does only makes a call longer. Where the program seems the slower one, both have
// another turn, call by call in between each other, and it is believed where even the program's best call
// took longer than eager's worst. Then the region is planned again with less fusion (PlanOptions::repeats),
// in the background, while eager answers; where that is slower than eager too, the region is eager's. What
// came of it is kept in the disk cache, beside the machine code: another process does not try again.
//
// Eager is the tape replayed: what eager does without what Python adds to it. Both follow eager's generators,
// and both can be taken back. In the last bits they may differ, as the program does from eager.
//
// Where gradients are needed a call counts once a backward pass has come to it, and takes as long as both
// (time_of_pass.h). So turns may change with several calls under way; a call belongs to the turn in which it
// began. Where passes do not come, the trial is given up and the program stays. Less fusion is not tried.
//
// What is tried is said in one place, worth_trying() and is_alike() in eager_trial.cpp: programs with kernels
// of ours, on the processor (elsewhere a call is over before its work is, and to wait for that would cost
// what eager does not pay), and not where the user asked for the same bits in each call. A program that takes
// no longer than kShort stays: there is little to win, and clocks and caches decide. Sizes that differ
// between calls are tried at those of the first call, and the verdict holds for all; with gradients they are
// not tried. A whole step is tried as any program, beside its own tape (make_step.h).
//
// Two calls at the same time measure each other: neither counts. Of the two programs only one is alive at a
// time, and the program's temporaries are let go of before eager has its first turn. In the second one, which
// few regions come to, they stay: to make them anew for each call would be measured. With backward passes,
// whose programs leave little for the next call, they stay.
#pragma once

#include <limits>
#include <mutex>
#include <optional>
#include <string>

#include "run/compiled.h"
#include "run/recorded.h"
#include "run/replayed.h"

namespace bolt::run {

/// TORCHBOLT_MEASURE.
bool measures_by_default();

/// The program itself where there is nothing to try; what an earlier process came to, where it tried. The
/// rest is what the program was compiled with (lower/settle.h).
std::shared_ptr<Runnable> make_trial(std::shared_ptr<Compiled> program, const lower::LowerOptions& options,
                                     const SymbolTable& computed, lower::Sizes& sizes,
                                     const std::string& name);

/// The same for a region that gradients are needed of.
std::shared_ptr<Runnable> make_trial_with_passes(std::shared_ptr<Runnable> program, const Recorded& recorded,
                                                 const lower::Sizes& sizes);

class EagerTrial final : public Runnable, public std::enable_shared_from_this<EagerTrial> {
 public:
  /// `adapts`: the program, where it can be planned again; null for one with backward passes.
  EagerTrial(std::shared_ptr<Runnable> program, std::shared_ptr<Compiled> adapts,
             std::shared_ptr<Replayed> eager, std::string name, std::string key);

  bool is_differentiated() const override { return has_passes_; }
  std::vector<int> written_inputs() const override { return written_inputs_; }
  void note_passes_in(const std::shared_ptr<DoubleBackward>& noted) override;
  Texts texts() const override;
  std::vector<StepFacts> costs() const override;
  std::vector<int> weights() const override;
  void prepare(const std::vector<at::Tensor>& inputs) override;
  bool is_trial() const override { return !successor(); }
  std::shared_ptr<Runnable> successor() const override;

 private:
  enum class Phase : uint8_t { program, eager, planning, over };
  struct Turn {
    std::shared_ptr<Runnable> who;
    Phase phase;
    std::optional<int64_t> alone;  ///< it counts if no other call began since
  };
  struct Timed {
    int calls = 0;
    double best = std::numeric_limits<double>::infinity(), worst = 0;
    bool done() const;
    void add(double nanoseconds);
  };

  std::vector<at::Tensor> call(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                               record::CallGenerators generators) override;
  Turn begin(const std::vector<int64_t>& values);
  void end(const Turn& turn, double nanoseconds);
  void end_with_pass(const Turn& turn, const std::vector<at::Tensor>& results, uint64_t first_node,
                     double nanoseconds);
  void add(Phase phase, double nanoseconds);
  void turn_is_over();
  void judge(bool is_slower);
  void plan_again();
  void take_cautious(std::shared_ptr<Compiled> made, const std::string& before);
  /// `why`: where it is not for what was measured.
  void keep_program(const std::string& why = "");
  void give_to_eager();
  std::string times() const;
  std::shared_ptr<Runnable> program() const;

  const std::string name_, key_;
  const bool has_passes_;
  const std::vector<int> written_inputs_;
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<Runnable> program_;
  std::shared_ptr<Compiled> adapts_;
  std::shared_ptr<Replayed> eager_;
  std::shared_ptr<Runnable> successor_;
  Phase phase_ = Phase::program;
  Timed ours_, eagers_;
  std::optional<double> first_;  ///< what the program took that was planned first
  bool again_ = false;           ///< both are called in turns, to be sure
  std::optional<Ints> sizes_;    ///< of the calls that count
  int64_t begun_ = 0;
  int running_ = 0, without_pass_ = 0;
};

}  // namespace bolt::run

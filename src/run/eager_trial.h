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
// What is tried is said in one place, worth_trying() in eager_trial.cpp: programs with kernels of ours, on
// the processor (elsewhere a call is over before its work is, and to wait for that would cost what eager does
// not pay), without gradients (there the time is the backward pass's, which comes when it likes), and not
// where the user asked for the same bits in each call. A program that takes no longer than kShort stays:
// there is little to win, and clocks and caches decide. Sizes that differ between calls are tried at those of
// the first call; the verdict holds for all.
//
// Two calls at the same time measure each other: neither counts. Of the two programs only one is alive at a
// time, and the program's temporaries are let go of before eager has its first turn. In the second one, which
// few regions come to, they stay: to make them anew for each call would be measured.
#pragma once

#include <limits>
#include <mutex>
#include <optional>
#include <string>

#include "run/compiled.h"
#include "run/replayed.h"

namespace bolt::run {

/// TORCHBOLT_MEASURE.
bool measures_by_default();

/// The program itself where there is nothing to try; what an earlier process came to, where it tried. The
/// rest is what the program was compiled with (lower/settle.h).
std::shared_ptr<Runnable> make_trial(std::shared_ptr<Compiled> program, const lower::LowerOptions& options,
                                     const SymbolTable& computed, lower::Sizes& sizes,
                                     const std::string& name);

class EagerTrial final : public Runnable, public std::enable_shared_from_this<EagerTrial> {
 public:
  EagerTrial(std::shared_ptr<Compiled> program, std::shared_ptr<Replayed> eager, std::string name,
             std::string key);

  bool is_differentiated() const override { return false; }
  std::vector<int> written_inputs() const override { return written_inputs_; }
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
  void turn_is_over();
  void judge(bool is_slower);
  void plan_again();
  void take_cautious(std::shared_ptr<Compiled> made, const std::string& before);
  void keep_program();
  void give_to_eager();
  std::string times() const;
  std::shared_ptr<Compiled> program() const;

  const std::string name_, key_;
  const std::vector<int> written_inputs_;
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<Compiled> program_;
  std::shared_ptr<Replayed> eager_;
  std::shared_ptr<Runnable> successor_;
  Phase phase_ = Phase::program;
  Timed ours_, eagers_;
  std::optional<double> first_;  ///< what the program took that was planned first
  bool again_ = false;           ///< both are called in turns, to be sure
  std::optional<Ints> sizes_;    ///< of the calls that count
  int64_t begun_ = 0;
  int running_ = 0;
};

}  // namespace bolt::run

// run/region.h
// Plan + machine code -> one call: tensors in, tensors out.
//
// A region runs in one of three ways, decided when it is built. Compiled: the plan's steps, a flat list over
// numbered buffers. Replayed: the tape, through the dispatcher; that is exact for gradients and never fails
// for lack of a kernel. Foreign: a function that a user's backend made.
//
// Memory: temporaries share one arena that stays with the region between calls (a call on another thread at
// the same time gets its own); outputs are allocated for each call. What depends on parameters only is
// computed once for each set of parameter tensors and again when one of them changed: their identity, memory
// and version counters are compared at each call.
//
// Sizes that are data (`u12_0`: how many rows nonzero() gives) are learnt from the step that finds them. What
// depends on them is evaluated and allocated then, and what was taken for granted about them is checked.
//
// Sizes: everything that depends on them (of buffers, results, kernels' arguments and work) is evaluated once
// for a set of sizes, and kept for the ones met last (Shapes). A call with known sizes only looks them up. A
// number that decides no size (a learning rate) goes to the kernels with each call.
//
// A region is immutable after `build` apart from those caches, and may run on several threads at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/cpu/compile_plan.h"
#include "loops/plan.h"
#include "lower/functionalize.h"
#include "record/tape.h"
#include "run/attempt.h"
#include "run/library.h"
#include "support/size_fact.h"

namespace bolt::run {

/// Throws SizeDemand for sizes that a step of the plan must know: attributes of library calls.
void check_sizes(const loops::Plan& plan);

class Region : public std::enable_shared_from_this<Region> {
 public:
  /// What happened on the way, for reports.
  struct Facts {
    int ops = 0, kernels = 0, kernels_before_fusion = 0, library_calls = 0, extern_calls = 0;
    int64_t bytes_moved = 0;
    bool compiled = false;
    bool from_cache = false;
    bool fallback = false;  ///< replayed although it was to be compiled
    std::string why_replayed;
    std::string functional_text;              ///< the graph that "aot_eager" runs
    std::vector<std::string> sizes_given_up;  ///< symbols that had to become numbers, and why
    std::vector<std::pair<std::string, double>> stage_seconds;
  };

  using Function = std::function<std::vector<at::Tensor>(
      const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values, record::CallGenerators)>;
  /// Calls `function` with the tape's inputs and the values of `symbols`, under the GIL.
  Region(record::Tape tape, std::vector<record::TensorId> wanted, Function function,
         std::vector<lower::SizeSymbol> symbols);
  /// Replays the tape.
  Region(record::Tape tape, std::vector<record::TensorId> wanted, std::string why,
         std::unordered_map<int, at::Tensor> constants, std::vector<lower::SizeSymbol> symbols);
  /// Runs the plan. `plan.graph` and `lowered` (its graph moved away) must belong together.
  Region(record::Tape tape, std::vector<record::TensorId> wanted, lower::Lowered lowered, loops::Plan plan,
         codegen::cpu::PlanCode code, std::vector<lower::SizeSymbol> symbols);
  ~Region();

  /// `inputs` in the order of the tape's inputs (undefined where the tape does not use one); results as
  /// wanted. `numbers`: the values of those symbols. `generators`: found in the place of those that the tape
  /// names. Throws RunEagerly; what an operator raises only where that cannot be taken back.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& numbers = {},
                              record::CallGenerators generators = {});

  /// Whether run() may throw.
  bool can_fail() const { return can_fail_; }
  /// Calls torch's operators, in grad mode also its autograd, and runs no code of ours.
  bool replays() const { return replay_; }
  /// Long enough to let other threads have the interpreter meanwhile.
  bool releases_gil() const { return releases_gil_; }
  const record::Tape& tape() const { return tape_; }
  const std::vector<record::TensorId>& wanted() const { return wanted_; }
  /// Those of numbers come in the order of run()'s.
  const std::vector<lower::SizeSymbol>& symbols() const { return symbols_; }
  /// Tape inputs whose memory the region writes.
  std::vector<int> written_inputs() const;
  Facts facts;
  /// What was taken for granted about sizes that are data.
  void check_data_sizes(const std::vector<SizeFact>& taken_for_granted);
  std::string graph_text() const;
  std::string plan_text() const;
  /// Set for a region whose sizes differ between calls: makes one for the values of symbols() that the caller
  /// meets again and again. Called on the background thread, at most twice; null: it cannot be made.
  std::function<std::shared_ptr<Region>(const std::vector<int64_t>& values)> specialize;
  /// The sizes of inputs that were symbols when compiling began, and what must hold of them, for guards.
  std::vector<lower::SizeSymbol> size_symbols;
  std::vector<SizeFact> size_facts;
  Syms number_sizes;  ///< what Recorded::number_sizes came to, over those symbols

 private:
  struct Context;
  struct Folded;
  struct PreparedStep;
  struct Shapes;
  struct DataSizes;
  // `sizes` are shaping_values(values): what special programs and contexts are looked up by.
  std::vector<at::Tensor> run_plan(const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
                                   std::vector<int64_t> sizes, record::CallGenerators generators);
  std::vector<int64_t> values_of(const std::vector<at::Tensor>& tape_inputs,
                                 const std::vector<int64_t>& numbers) const;
  void find_shaping_symbols();
  std::vector<int64_t> shaping_values(std::vector<int64_t> values) const;
  std::shared_ptr<Region> special_for(const std::vector<int64_t>& values, const std::vector<int64_t>& sizes);
  std::string name_of(const loops::Step& step) const;
  void prepare();
  void run_steps(Context& c, const std::vector<PreparedStep>& steps);
  void run_step(Context& c, const PreparedStep& step);
  void run_kernel(Context& c, const PreparedStep& step);
  void run_call(Context& c, const PreparedStep& step);
  void take_result(Context& c, const PreparedStep& step, int buffer, const at::Tensor& result);
  void pack(Context& c, const loops::Step& step);
  void* pointer_of(Context& c, int buffer);
  const std::vector<int64_t>& numbers_of(Context& c, const PreparedStep& step);
  void bind_inputs(Context& c, const std::vector<at::Tensor>& inputs);
  std::shared_ptr<Folded> folded(const std::vector<at::Tensor>& inputs,
                                 const std::shared_ptr<const Shapes>& shapes);
  std::vector<at::Tensor> collect(Context& c, const std::vector<at::Tensor>& inputs, bool grad_mode);
  const at::Tensor& tensor_of(Context& c, int buffer);
  std::unique_ptr<Context> take_context(const std::vector<int64_t>& values, std::vector<int64_t> sizes);
  std::shared_ptr<const Shapes> shapes_for(std::vector<int64_t> sizes);
  void make_arena(Context& c);
  void find_data_sizes();
  void find_lifetimes();
  /// Its sizes are data.
  bool waits(size_t buffer) const { return !buffer_phase_.empty() && buffer_phase_[buffer] > 0; }
  void make_output(Context& c, size_t buffer);
  void make_waiting(Context& c, int buffer);
  int data_phase(const Syms& sizes) const;
  void check_kind(const PreparedStep& p, const std::vector<at::Tensor>& results) const;
  void learn_sizes(Context& c, const PreparedStep& p, const std::vector<at::Tensor>& results);
  void give_context(std::unique_ptr<Context> c);

  record::Tape tape_;
  std::vector<record::TensorId> wanted_;
  Attempts attempt_{tape_};
  std::vector<std::optional<bool>> modes_;  ///< by output: made in inference mode? None: no operator made it
  bool replay_ = false;
  Function function_;
  std::optional<VisibleWrites> visible_writes_;    ///< of a replayed tape
  std::unordered_map<int, at::Tensor> constants_;  ///< of a replayed tape, by input
  bool releases_gil_ = true, can_fail_ = true;
  lower::Lowered lowered_;
  loops::Plan plan_;
  codegen::cpu::PlanCode code_;
  std::vector<PreparedStep> steps_, fold_steps_;
  std::vector<int> fold_inputs_;                       // graph inputs the fold steps read
  std::vector<char> in_fold_;                          // by buffer: a fold step reads or writes it
  std::vector<lower::SizeSymbol> symbols_;             // of sizes and numbers
  std::vector<char> shaping_;                          // by symbol: Shapes depend on it
  std::vector<DataSizes> data_sizes_;                  // in the order in which they become known
  std::vector<int> buffer_phase_;                      // by buffer: so many of these must be known
  std::mutex mutex_;                                   // guards the caches below
  std::vector<std::shared_ptr<const Shapes>> shapes_;  // last used first
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<std::shared_ptr<Folded>> folds_;
  std::vector<std::pair<std::vector<int64_t>, int>>
      counts_;  ///< calls by sizes, of a region with `specialize`
  std::vector<std::pair<std::vector<int64_t>, std::shared_ptr<Region>>> special_;  ///< null: being made
};

}  // namespace bolt::run

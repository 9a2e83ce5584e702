// run/execution.h
// One call of a prepared program: its steps, in their order, over its memory (call_memory.h), to its results
// (collected.h).
//
// It stays from call to call, with what memory it keeps; a call on another thread at the same time has
// another Execution.
//
// Sizes that are data are learnt from the step that finds them: what rests on them is evaluated and allocated
// then, and what was taken for granted about them is checked.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "run/call_memory.h"
#include "run/collected.h"

namespace bolt::run {

/// What the fold steps made, and the order of work on each device (device::Queue) that they were part of.
struct FoldedBuffers {
  std::vector<std::pair<int, BufferInCall>> slots;
  Ints orders;
};

class Execution {
 public:
  explicit Execution(const Prepared& prepared);

  CallMemory memory;

  // ---- a call
  bool is_for(const Ints& sizes) const { return memory.shapes() && memory.shapes()->key == sizes; }
  /// From now on for these.
  void take_shapes(std::shared_ptr<const Shapes> shapes);
  /// `values`: of the program's symbols. Raises what kernels of earlier calls reported.
  void begin(Ints values, record::CallGenerators generators);
  void bind(const std::vector<at::Tensor>& inputs);
  void use(const FoldedBuffers& folded);
  void run(std::span<const PreparedStep> steps);
  /// See Collected::collect.
  std::vector<at::Tensor> collect(const std::vector<std::optional<bool>>& modes,
                                  const std::vector<char>& wanted = {}) {
    return outputs_.collect(memory, modes, wanted);
  }
  /// Lets go of everything but memory that the next call needs.
  void end();

  // ---- parts of a call, where others are repeated (recordings.h)
  /// Later launches go to where the caller's work goes now.
  void follow_queues();
  /// run(), while they are recorded.
  void run_recorded(std::span<const PreparedStep> steps);
  device::Queue& queue(size_t device) { return *queues_[device]; }
  /// The step that runs, or has raised.
  const PreparedStep* running() const { return running_; }
  /// When a step has raised: has one before it in the program written to an input? There is nothing to be
  /// done again then. Steps fail there for want of what only their library asks for.
  bool has_written() const;

  // ---- the fold steps, instead of a call
  FoldedBuffers fold(const std::vector<at::Tensor>& inputs, std::shared_ptr<const Shapes> shapes);

 private:
  const Shapes::OfStep& of_step(const PreparedStep& p) const { return memory.shapes()->steps[p.shape]; }
  void run_step(const PreparedStep& p);
  bool keep_call(const PreparedStep& p);
  void launch(const PreparedStep& p);
  void launch_list(std::span<const PreparedStep> list);
  void call(const PreparedStep& p);
  const Ints& numbers(const PreparedStep& p);
  void learn(const PreparedStep& p, const std::vector<at::Tensor>& results);
  void take(const PreparedStep& p, int buffer, const at::Tensor& result);
  bool made_in_place(const PreparedStep& p);

  const Prepared& p_;
  Collected outputs_{p_};
  std::shared_ptr<Shapes> own_;  // where sizes are data: those of the memory, to be completed
  Ints values_;                  // of the program's symbols
  record::CallGenerators generators_;
  std::vector<std::unique_ptr<device::Queue>> queues_;  // by device
  const PreparedStep* running_ = nullptr;
  bool tells_of_calls_ = false;  // a recording, which sees launches only (device::Queue::keeps_calls)
  // Room that is used again by each step.
  std::vector<void*> pointers_;
  std::vector<at::Tensor> operands_;
  Ints numbers_;
};

}  // namespace bolt::run

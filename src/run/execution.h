// run/execution.h
// One call of a prepared program: its memory, its steps, its results.
//
// Memory: temporaries share one arena a device, which stays with the Execution from call to call (a call on
// another thread at the same time has another Execution). Outputs, and temporaries that lie apart, are
// allocated in each call, when the first step needs them. What depends on parameters only comes from
// elsewhere (folds.h).
//
// Sizes that are data are learnt from the step that finds them: what rests on them is evaluated and allocated
// then, and what was taken for granted about them is checked.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "run/prepared.h"

namespace bolt::run {

/// A buffer in one call. `tensor` may be made lazily from `data`; `data` is there once the buffer is defined.
struct BufferInCall {
  void* data = nullptr;
  at::Tensor tensor;
};

/// What the fold steps made, and the order of work on each device (device::Queue) that they were part of.
struct FoldedBuffers {
  std::vector<std::pair<int, BufferInCall>> slots;
  Ints orders;
};

/// The mode that a tensor is made in stays with it.
at::Tensor made_in(std::optional<bool> inference_mode, at::Tensor t);

class Execution {
 public:
  explicit Execution(const Prepared& prepared);

  // ---- a call
  bool is_for(const Ints& sizes) const { return shapes_ && shapes_->key == sizes; }
  /// From now on for these; memory of earlier calls is used again where it is large enough.
  void take_shapes(std::shared_ptr<const Shapes> shapes);
  const std::shared_ptr<const Shapes>& shapes() const { return shapes_; }
  /// `values`: of the program's symbols. Raises what kernels of earlier calls reported.
  void begin(Ints values, record::CallGenerators generators);
  void make_arenas();
  void bind(const std::vector<at::Tensor>& inputs);
  void use(const FoldedBuffers& folded);
  void run(std::span<const PreparedStep> steps);
  /// The outputs in order; those that are no fresh tensors stay undefined. `modes`: by output, whether it was
  /// made in inference mode; none: no operator made it.
  std::vector<at::Tensor> collect(const std::vector<std::optional<bool>>& modes);
  const std::vector<Result>& results() const { return shapes_->results; }
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
  const std::vector<BufferInCall>& slots() const { return slots_; }
  void put(std::vector<BufferInCall> slots) { slots_ = std::move(slots); }
  /// A buffer lies there. bind() makes no other memory for it.
  void put(int buffer, void* data) { slot(buffer) = {data, {}}; }
  void put(int buffer, at::Tensor tensor) { give(buffer, std::move(tensor)); }
  /// In this call, the step that makes the buffer makes it there.
  void place(int buffer, at::Tensor tensor) { places_[buffer] = std::move(tensor); }
  void make_output(int buffer);
  const at::Tensor& tensor(int buffer);
  /// Only those outputs whose place is not 0 in `wanted`.
  std::vector<at::Tensor> collect(const std::vector<std::optional<bool>>& modes,
                                  const std::vector<char>& wanted);

  // ---- the fold steps, instead of a call
  FoldedBuffers fold(const std::vector<at::Tensor>& inputs, std::shared_ptr<const Shapes> shapes);

 private:
  BufferInCall& slot(int buffer) { return slots_[static_cast<size_t>(buffer)]; }
  const Shapes::OfBuffer& shape(int buffer) const { return shapes_->buffers[static_cast<size_t>(buffer)]; }
  at::TensorOptions options(int buffer) const;
  at::Tensor over(int buffer, void* data) const;
  void* pointer(int buffer);
  void give(int buffer, at::Tensor tensor);
  bool keeps(size_t arena) const { return p_.devices[p_.device_of_arena[arena]].driver->keeps_arenas(); }
  void make_arena(size_t arena);
  void drop_arena(size_t arena);
  void make(int buffer);
  void make_copies();
  template <class Each>
  void for_fresh(Each each) const;
  /// The device of its work, where that goes on when the step has returned.
  std::optional<c10::Device> goes_on_behind(const PreparedStep& p) const;
  size_t end_of_write_backs(std::span<const PreparedStep> steps, size_t first) const;
  void copy_all(std::span<const PreparedStep> steps, size_t from, size_t to);
  void run_step(const PreparedStep& p);
  bool keep_call(const PreparedStep& p);
  void launch(const PreparedStep& p);
  void launch_list(std::span<const PreparedStep> list);
  void call(const PreparedStep& p);
  const Ints& numbers(const PreparedStep& p);
  bool stores_nothing(const PreparedStep& p) const;
  void check_kind(const PreparedStep& p, const std::vector<at::Tensor>& results) const;
  void learn(const PreparedStep& p, const std::vector<at::Tensor>& results);
  void take(const PreparedStep& p, int buffer, const at::Tensor& result);
  bool made_in_place(const PreparedStep& p);

  const Prepared& p_;
  std::shared_ptr<const Shapes> shapes_;
  std::shared_ptr<Shapes> own_;  // where sizes are data: `shapes_`, to be completed
  Ints values_;                  // of the program's symbols
  record::CallGenerators generators_;
  std::vector<BufferInCall> slots_;  // by buffer
  std::vector<at::Tensor> arenas_;
  std::map<int, at::Tensor> places_;  // of some buffers that calls make
  std::vector<at::Tensor> copies_;    // by output: its memory, where that is not the memory of its buffer
  std::vector<std::unique_ptr<device::Queue>> queues_;  // by device
  const PreparedStep* running_ = nullptr;
  bool tells_of_calls_ = false;  // a recording, which sees launches only (device::Queue::keeps_calls)
  // Room that is used again by each step.
  std::vector<void*> pointers_;
  std::vector<at::Tensor> operands_;
  Ints numbers_;
};

}  // namespace bolt::run

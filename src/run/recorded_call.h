// run/recorded_call.h
// One recorded call of a prepared program, and calls that repeat it (recordings.h).
//
// The recording owns no memory: its addresses are those of a pool that recordings of one order of work share
// (device::DeviceInterface::reserve). While a call has its turn, temporaries, the results of calls within
// graphs and copies of inputs lie where they lay in the call that was recorded.
//
// Results lie in memory of the recording's own (device::ResultMemory), and are the caller's: he gets the
// memory that the graphs write to, and the call that finds it in use cannot be repeated. Those that the
// policy says are copied out of graphs' memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "run/attempt.h"
#include "run/execution.h"
#include "run/sections.h"
#include "run/still_places.h"

namespace bolt::run {

/// What decides about a call, and what it is run with.
struct GraphedCall {
  const std::vector<at::Tensor>& inputs;  ///< of the graph
  const Ints& values;
  std::shared_ptr<const Shapes> shapes;
  std::shared_ptr<const FoldedBuffers> folded;  ///< null: nothing is folded
  const std::vector<std::optional<bool>>& modes;
  const record::CallGenerators& generators;
  const Attempts& attempts;
};

int64_t dense_bytes(DType dtype, const Ints& sizes);

/// A tensor in graphs' memory.
struct GraphPlace {
  GraphPlace(size_t index, const at::Tensor& tensor);
  at::Tensor tensor() const;
  void fill(device::Queue& queue, const at::Tensor& from) const;
  void empty(device::Queue& queue, const at::Tensor& to) const;

  size_t index;  ///< of the input, output or buffer
  void* data = nullptr;
  Ints sizes, strides;
  c10::Device device;
  c10::ScalarType dtype{};
  int64_t bytes = 0;  ///< 0: not dense
};

class RecordedCall {
 public:
  using Tensors = std::vector<at::Tensor>;

  /// `before`: whose place this one takes; may be null. Results lie in its memory, so that they lie where
  /// they lay, and who reads them in place may go on.
  RecordedCall(const Prepared& prepared, std::shared_ptr<const Sections> sections,
               std::unique_ptr<Execution> execution, RecordedCall* before);

  /// Before each of the following. Kernels' reports are heard of here.
  void begin(const GraphedCall& call);
  /// Execution::has_written, of the call that has begun.
  bool has_written() const { return execution_->has_written(); }
  /// Runs the call as well. Nothing: nothing was run. `queue` and `turn`: of the caller's order of work.
  /// `copied`: by input, whether the graphs are to read a copy. `copied_out`: by output, whether it is copied
  /// out of their memory.
  std::optional<Tensors> record(const GraphedCall& call, device::Queue& queue, const device::Turn& turn,
                                const std::vector<char>& copied, const std::vector<char>& copied_out);
  /// Nothing: nothing was run, since memory of results is in use (`in_use`).
  std::optional<Tensors> repeat(const GraphedCall& call, device::Queue& queue, const device::Turn& turn);
  /// Outputs of a call before, whose memory somebody has.
  const std::vector<size_t>& in_use() const { return in_use_; }

  struct Failure {
    std::string step, why;  ///< no step: it is not known which
  };
  /// After `record`: nothing may be repeated.
  const std::optional<Failure>& failure() const { return failure_; }
  const Sections& sections() const { return *sections_; }
  /// For logs.
  std::string text() const;

 private:
  struct Part {
    std::unique_ptr<device::RecordedLaunches> recording;  ///< null: its steps are launched
    std::vector<std::pair<int, void*>> makes;             ///< buffers that are the results of its calls
    std::vector<std::pair<int, at::Tensor>> elsewhere;    ///< those that its calls gave on another device
  };
  /// An output that the caller gets where the graphs make it.
  struct Staying {
    size_t output = 0;
    int64_t bytes = 0;     ///< what it takes of memory
    bool is_part = false;  ///< of that, as logits in padded rows
    size_t memory = 0;     ///< one of memories_
    int64_t at = 0;        ///< its first byte there
    at::Tensor fresh{};    ///< while it is recorded
  };
  /// Of one such output, or of all that nobody but a later part of the program sees: many, for each of which
  /// an allocation would take longer than all else that the host does.
  struct Memory {
    char* place = nullptr;
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> given{};  ///< to the caller of the last call
  };
  using Turn = device::Turn;
  using Section = device::GraphSection;

  const UsedDevice& device() const { return p_.devices[sections_->device]; }
  std::span<const PreparedStep> steps(const Section& s) const {
    return std::span(p_.steps).subspan(s.begin, s.end - s.begin);
  }
  bool make_memory(const GraphedCall& call, device::Queue& queue, const std::vector<char>& copied,
                   const std::vector<char>& copied_out);
  void choose_staying(const GraphedCall& call, const std::vector<char>& copied_out);
  void choose_memory(const GraphedCall& call);
  bool settle(const GraphedCall& call);
  bool lies_elsewhere(const at::Tensor& t) const;
  int buffer_of(size_t output) const;
  bool fills_its_owner(const Shapes& shapes, int buffer) const;
  bool is_most_of_its_owner(const Shapes& shapes, int buffer) const;
  void bind(const GraphedCall& call);
  bool capture(size_t section, device::Queue& queue);
  void launch(const Section& section, device::Queue& queue, const Turn& turn);
  void place(const PreparedStep& step, int buffer, device::Queue& queue);
  void note_outputs();
  Tensors make_copies(const GraphedCall& call) const;
  at::Tensor given_as(const Staying& s, const GraphedCall& call, const at::Tensor& memory) const;
  std::optional<Tensors> make_staying();
  void give(const GraphedCall& call, device::Queue& queue, Tensors& out);

  const Prepared& p_;
  const std::shared_ptr<const Sections> sections_;
  const std::unique_ptr<Execution> execution_;
  std::shared_ptr<const FoldedBuffers> folded_;  ///< alive, since graphs read them
  std::vector<std::shared_ptr<void>> memory_;    ///< of the pool
  Tensors held_;  ///< while it is recorded, or as long as it may be repeated where there is no pool
  std::vector<std::pair<int, void*>> still_;  ///< buffers that lie there from the beginning
  std::vector<Part> parts_;                   ///< by section
  std::vector<GraphPlace> inputs_, placed_, outputs_;
  std::vector<char> collected_;  ///< by output: it does not lie in graphs' memory
  std::vector<Staying> staying_;
  StillPlaces still_places_;                         ///< of those
  std::vector<Memory> memories_;                     ///< of those
  std::vector<device::ResultMemory::Result> kinds_;  ///< as each of them is asked for
  std::vector<size_t> in_use_;
  std::vector<char> written_;  ///< by graph input
  std::unique_ptr<device::ResultMemory> results_;
  bool binds_ = false;  ///< a call has more to do than to launch
  std::optional<Failure> failure_;
};

}  // namespace bolt::run

// run/recordings.h
// Calls of a prepared program whose launches are given to the device all at once (CUDA graphs).
//
// Which call is launched step by step, which is recorded and which is repeated says GraphPolicy
// (device/driver/graph_policy.h). A call that is repeated copies the inputs that move to where the recording
// reads them, launches, and copies the results into memory of their own, in the order of the caller's stream.
// So a result is the caller's for good: no later call writes over it, whoever holds it, for how long, and on
// which stream. Inputs that are written are written in place, or copied back.
//
// What a recording would freeze is not recorded: random numbers, sizes that are data, work on the processor,
// operators that torch calls unsafe for it. `obstacle` says which.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/driver/graph_policy.h"
#include "run/execution.h"

namespace bolt::run {

class Recordings {
 public:
  Recordings(const Prepared& prepared, std::string name);

  /// Why no call is recorded; "": some may be.
  const std::string& obstacle() const { return obstacle_; }

  /// What decides about a call, and what it is run with.
  struct Call {
    const std::vector<at::Tensor>& inputs;  ///< of the graph
    const Ints& values;
    std::shared_ptr<const Shapes> shapes;
    std::shared_ptr<const FoldedBuffers> folded;  ///< null: nothing is folded
    const std::vector<std::optional<bool>>& modes;
  };
  /// The outputs as Execution::collect gives them. Nothing: the call is to be run step by step.
  /// `take_execution`: gives one that the call's steps may be run by.
  std::optional<std::vector<at::Tensor>> run(
      const Call& call, const std::function<std::unique_ptr<Execution>()>& take_execution);

 private:
  /// A tensor of the recording's, whose memory is the recording's while it has its turn.
  struct Place {
    size_t index;  ///< of the input or output
    void* data = nullptr;
    Ints sizes, strides;
    c10::ScalarType dtype{};
    int64_t bytes = 0;  ///< 0: not dense
  };
  struct Made;

  std::string find_obstacle() const;
  device::GraphCall described(const Call& call, int64_t order) const;
  std::shared_ptr<Made> record(const Call& call, device::Queue& queue, const std::vector<char>& copied,
                               std::unique_ptr<Execution> execution) const;
  std::vector<at::Tensor> replay(Made& made, const Call& call) const;
  at::Tensor over(const Place& place) const;
  void copy(device::Queue& queue, const Place& place, const at::Tensor& tensor, bool to_place) const;
  std::shared_ptr<Made> made_of(const device::GraphPolicy::Decision& decision);
  void say(const std::string& why) const;

  const Prepared& p_;
  const std::string name_;
  std::string obstacle_;
  std::vector<char> written_;  ///< by graph input
  std::mutex mutex_;           ///< guards what follows
  device::GraphPolicy policy_;
  std::vector<std::shared_ptr<Made>> made_;  ///< by slot
};

}  // namespace bolt::run

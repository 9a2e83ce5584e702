// run/step_times.h
// What the steps of a program take when they run, beside what the model of costs says of them (loops/cost.h),
// for explain().
//
// Steps are timed inside real calls, as long as somebody asks for it: each call of the process then is. The
// processor's steps by its clock; those of a device that works behind the host's back by events on the stream
// that the step is launched into, which are read when the call's last step is done. An event sees the device
// wait for the host as well: a kernel that takes less than its launch shows about the launch.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace bolt::run {

/// One step of each call, for reports. Bytes, instructions and a prediction are there for kernels alone: of
/// products and calls of libraries the model knows nothing.
struct StepFacts {
  std::string kind, name;
  std::optional<double> bytes, instructions;
  std::optional<double>
      repeated;  ///< the share of the instructions that its operations by themselves had not
  std::optional<double> predicted_ns, measured_ns;
};

class StepTimes {
 public:
  /// By step: the best so far, in nanoseconds. Empty: no call was timed.
  std::vector<double> best() const;
  void add(const std::vector<double>& nanoseconds);

 private:
  mutable std::mutex mutex_;
  std::vector<double> best_;
};

/// Are calls timed now?
std::atomic<bool>& steps_are_timed();

}  // namespace bolt::run

// run/stopwatch.h
// Times the steps of one call: see step_times.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "device/measure.h"

namespace bolt::run {

class Stopwatch {
 public:
  /// Runs the next step. `device`: goes on with it behind the host's back; nothing: none does.
  template <class Run>
  void time(std::optional<c10::Device> device, const Run& run) {
    if (device) events_.emplace_back(times_.size(), device::mark(*device));
    const auto begin = std::chrono::steady_clock::now();
    run();
    times_.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
    if (device) events_.emplace_back(times_.size(), device::mark(*device));
  }

  /// By step, in nanoseconds. Waits for devices.
  std::vector<double> times();

 private:
  std::vector<double> times_;
  std::vector<std::pair<size_t, c10::Event>> events_;  ///< before and after each step that has a device
};

}  // namespace bolt::run

// run/step_times.cpp
#include "run/step_times.h"

#include <algorithm>

namespace bolt::run {

std::vector<double> StepTimes::best() const {
  std::lock_guard lock(mutex_);
  return best_;
}

void StepTimes::add(const std::vector<double>& nanoseconds) {
  std::lock_guard lock(mutex_);
  if (best_.empty()) best_ = nanoseconds;
  for (size_t i = 0; i < nanoseconds.size(); ++i) best_[i] = std::min(best_[i], nanoseconds[i]);
}

std::atomic<bool>& steps_are_timed() {
  static std::atomic<bool> timed{false};
  return timed;
}

}  // namespace bolt::run

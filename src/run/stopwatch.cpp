// run/stopwatch.cpp
#include "run/stopwatch.h"

namespace bolt::run {

std::vector<double> Stopwatch::times() {
  for (size_t i = 0; i + 1 < events_.size(); i += 2) {
    events_[i + 1].second.synchronize();
    times_[events_[i].first] = events_[i].second.elapsedTime(events_[i + 1].second) * 1e6;
  }
  return std::move(times_);
}

}  // namespace bolt::run

// run/stopwatch.cpp
#include "run/stopwatch.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace bolt::run {

c10::Event Stopwatch::mark(c10::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // the flag of torch's own has no time
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

std::vector<double> Stopwatch::times() {
  for (size_t i = 0; i + 1 < events_.size(); i += 2) {
    events_[i + 1].second.synchronize();
    times_[events_[i].first] = events_[i].second.elapsedTime(events_[i + 1].second) * 1e6;
  }
  return std::move(times_);
}

}  // namespace bolt::run

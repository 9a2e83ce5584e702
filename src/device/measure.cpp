// device/measure.cpp
#include "device/measure.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "device/device.h"
#include "record/convert.h"
#include "support/error.h"

namespace bolt::device {
namespace {

constexpr int kInARow = 16;
constexpr int kRounds = 3;

const DeviceInterface& driver_of(c10::Device device) {
  const DeviceInterface* driver = find(record::to_bolt(device).kind);
  BOLT_CHECK(driver, "nothing is known of ", device.str());
  return *driver;
}

double by_the_clock(const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, taken.count());
  }
  return best;
}

double by_recordings(const DeviceInterface& driver, c10::Device device, Queue& queue,
                     const std::function<void()>& work) {
  const Turn turn = queue.turn();
  BOLT_CHECK(turn, "the device records something else");
  const std::unique_ptr<RecordedLaunches> recording = driver.record(queue, false, [&] {
    for (int i = 0; i < kInARow; ++i) work();
  });
  queue.follow();
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    recording->launch(queue);
    c10::Event begin = mark(device);
    recording->launch(queue);
    c10::Event end = mark(device);
    end.synchronize();
    best = std::min(best, begin.elapsedTime(end) * 1e6 / kInARow);
  }
  return best;
}

}  // namespace

c10::Event mark(c10::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // the flag of torch's own has no time
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

bool may_measure(c10::Device device) {
  const std::unique_ptr<Queue> queue = driver_of(device).queue(device);
  queue->follow();
  return !queue->is_being_recorded();
}

double nanoseconds_of(c10::Device device, const std::function<void()>& work) {
  const DeviceInterface& driver = driver_of(device);
  const std::unique_ptr<Queue> queue = driver.queue(device);
  queue->follow();
  work();
  return device.is_cpu() ? by_the_clock(work) : by_recordings(driver, device, *queue, work);
}

}  // namespace bolt::device

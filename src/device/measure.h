// device/measure.h
// Work on a device -> how long the device takes for it.
//
// The host is much slower to ask for a small piece of work than a device is to do it. So the work is recorded
// many times in a row, where the device has recordings, and the recordings are launched back to back: one is
// measured while the one before it keeps the device busy, and the host does not count.
#pragma once

#include <c10/core/Event.h>

#include <functional>

namespace bolt::device {

/// False while somebody else records what is launched there: a measurement would be part of the recording.
bool may_measure(c10::Device device);

/// The moment at which the device has done what it was asked for so far.
c10::Event mark(c10::Device device);

/// Nanoseconds of one run, the best of some, after a first one that nobody measures. The work must not draw
/// random numbers. Throws what it throws, and where it cannot be measured now.
double nanoseconds_of(c10::Device device, const std::function<void()>& work);

}  // namespace bolt::device

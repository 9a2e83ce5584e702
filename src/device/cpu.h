// device/cpu.h
// The processor we run on.
#pragma once

#include "device/device.h"

namespace bolt::device {

const DeviceInterface* cpu();

}  // namespace bolt::device

// device/cpu.h
// The processor we run on.
#pragma once

#include "device/device.h"

namespace bolt::device {

const Device* cpu();

}  // namespace bolt::device

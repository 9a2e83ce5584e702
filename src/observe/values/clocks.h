// observe/values/clocks.h
// time.time(), time.perf_counter() and the like -> numbers that each call of the region reads anew
// (clocks.cpp).
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

/// A clock that was read behind operators at a place that has operators behind it, too: the next recording
/// ends before it.
void check_clocks(Recording& recording);

}  // namespace bolt::observe

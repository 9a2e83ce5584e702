// loops/compute_where_read.h
// Units of a fusion -> the same without values that each of their readers can as well compute by itself.
//
// A value that a kernel stores for others is computed by each of them instead, where that moves fewer bytes:
// a normalised image in float32, which they can make of the image in bfloat16 that they read anyway, and of
// its statistics. Its nodes become free, and belong to no unit any more.
#pragma once

#include "loops/units.h"

namespace bolt::loops {

/// `fuel`: at most so many values, unless it is below 0; what is left. Returns whether there was any.
bool compute_where_read(Units& units, int& fuel);

}  // namespace bolt::loops

// loops/directions.h
// Two units -> would a reduction that reads memory as it lies stand beside accesses that do not go its way?
//
// Where all whole values that a kernel reads and stores run along memory in one dimension, the vectors of a
// processor load and store them as they lie, or a few elements apart. A kernel that reduces and meets values
// that lie in different orders loads some element by element, in each of its sweeps. As two kernels each
// reads what it is given as it lies, and the one that only computes element by element turns squares in
// registers (codegen/cpu/schedule.h).
#pragma once

#include "loops/units.h"

namespace bolt::loops {

/// `both`: the group of units `a` and `b`.
bool crosses_rows(const Units& units, int a, int b, const Group& both);

}  // namespace bolt::loops

// loops/order_units.h
// Units of a fusion -> the same units, some of them at a better place in the order.
#pragma once

#include "loops/units.h"

namespace bolt::loops {

/// What is computed again of what was kept waits for nothing, so merges across it leave it anywhere in
/// front. Its results need memory: it comes right before the first who reads any of them.
void again_just_in_time(Units& units);

/// A number that a call counts on in an input of its own (batches that a normalisation has seen) is
/// nobody's business before the end: there they are neighbours. That is to save starts, where they cost
/// something.
void counters_last(Units& units);

}  // namespace bolt::loops

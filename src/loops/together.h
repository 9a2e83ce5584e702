// loops/together.h
// Plan -> Plan: steps whose kernels a device can launch as one (PlanOptions::list_key) come to stand next to
// each other, as a list. The steps of an optimizer are the same for each parameter, and so are the norms of
// gradients.
//
// A step is only moved forward, to the first of its list, so what it reads dies no later; what it makes must
// lie in memory that is there anyway, or be small. Of what rests on inputs alone, as half types of weights
// do, as much is made at once as is little beside what the program has in memory. Small kernels on the
// processor that it waits for (what a learning rate comes to) are moved with it. None is moved to before a
// step that may fail, where the caller would see what it writes.
#pragma once

#include "loops/plan.h"

namespace bolt::loops {

/// After write_in_place, before lifetimes.
void launch_together(Plan& plan, const PlanOptions& options);

}  // namespace bolt::loops

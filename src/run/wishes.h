// run/wishes.h
// What the user asked for that holds for every program of a region, in however many parts it is compiled.
#pragma once

#include "autograd/partition.h"

namespace bolt::run {

struct Wishes {
  autograd::Budget budget;  ///< of what is kept for a backward pass
  /// By CUDA graphs, where that can be done. For those temporaries stay in one block from the first step to
  /// the last; elsewhere large ones come and go.
  bool launch_at_once = false;
  bool rounds_as_eager = false;  ///< loops::PlanOptions
};

}  // namespace bolt::run

// autograd/step_price.h
// A joint tape -> what both of its parts take, in the unit of Prices: so a share of the step can be said.
//
// It is no more than the step takes: products are as quick as the device has them in half types, and kernels
// move what has to lie in memory (what a whole call or a pass reads and gives, what is made for one by
// operators that share a kernel) once each way.
#pragma once

#include <vector>

#include "autograd/flow.h"

namespace bolt::autograd {

/// `needed`: needed_backward() (order.h).
double price_of_step(const Flow& flow, const std::vector<int>& needed);

}  // namespace bolt::autograd

// run/time_of_pass.h
// What a call gave -> how long the first backward pass over it spends there.
//
// Each of autograd's nodes that the call made is watched: from where a pass comes to the first until it has
// left the last. What else the engine runs in between counts as well. Nothing is told of a pass that is
// differentiated itself, nor of a second one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace bolt::run {

/// `first_node`: what autograd numbers the call's nodes from. `tell` is called with nanoseconds at the pass's
/// end, in its thread, or never. False: there are no nodes.
bool time_pass_over(const std::vector<at::Tensor>& results, uint64_t first_node,
                    std::function<void(double)> tell);

}  // namespace bolt::run

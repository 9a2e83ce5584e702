// autograd/order.h
// What is kept and what is computed again -> the entries of both parts, in order, and the peak of their
// memory.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/flow.h"

namespace bolt::autograd {

enum class Fate : uint8_t { Dropped, Kept, Again };
using Fates = std::vector<Fate>;  ///< by storage of the joint tape

struct Order {
  std::vector<int> forward, backward;  ///< as in Partition
  std::vector<record::TensorId> kept;
};
/// The entries of the backward part that gradients come from.
std::vector<int> needed_backward(const Flow& flow);

/// What the backward part reads of the forward part must have a fate, and what that reads when it is computed
/// again. `needed`: needed_backward().
Order order_of(const Flow& flow, const std::vector<int>& needed, const Fates& fates);

struct Peak {
  int64_t bytes = 0;
  int at = -1;                ///< an index into Order::backward; -1: in the forward part
  std::vector<int> last_use;  ///< by storage, an index into Order::backward; -1: none
};
Peak peak_of(const Flow& flow, const Fates& fates, const Order& order);

}  // namespace bolt::autograd

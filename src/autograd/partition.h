// autograd/partition.h
// A joint tape -> what is kept from the forward part for the backward part, and what is computed again there.
//
// First a cut (min_cut.h) finds what is cheapest to keep and to compute again, prices (work.h) deciding. What
// a cut cannot see is when memory is alive, and only the peak matters in the end. So the peak of both parts
// is simulated, tensor by tensor, and where it is above what is allowed, more is computed again: what is kept
// at the moment of the peak, and gives most bytes for its price, goes first; cuts under which memory is
// dearer are tried too. All these plans stand in one row, each dearer and with a lower peak than those before
// it. The row does not depend on what is allowed, so a smaller allowance never gives a higher peak. Where
// nothing is said, the plan that takes least time is the first, of those whose peak is no higher than in
// eager nor than that of a cut which minds bytes alone, so that what it has computed again is nearly free.
// From there the peak is lowered as long as that takes no more than a fiftieth of the step's time
// (step_price.h).
//
// What is computed again runs once, just before its first reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "autograd/joint.h"
#include "autograd/work.h"

namespace bolt::autograd {

/// How high the peak may be. Without anything said: as high as where everything is kept that eager keeps.
struct Budget {
  /// Between the lowest peak that is known to be possible (0) and the one without a budget (1):
  /// activation_memory_budget.
  std::optional<double> share;
  std::optional<int64_t> bytes;
};

struct MemoryUse {
  size_t tensors = 0;  ///< kept, inputs of the run among them
  int64_t bytes = 0;   ///< kept, of what no input lies in, which is alive anyway
  int64_t peak = 0;    ///< of everything alive at once, in either part, that no input lies in
};

struct Partition {
  std::vector<record::TensorId> kept;  ///< in order of their first use; no two are views of one another
  /// Inputs among these that eager would not keep: where one of them is written to between the parts, eager's
  /// backward pass would still be right.
  std::vector<record::TensorId> inputs_kept_anew;
  std::vector<int> forward;   ///< entries of the joint tape that the forward part needs
  std::vector<int> backward;  ///< those of the backward part, and before them what is computed again
  MemoryUse memory, eager;
  /// What is computed again, and what is only written to be kept, takes so much of the step's time: by
  /// prices.
  double share_of_step = 0;
};
Partition partition(const Joint& joint, const Budget& budget = {}, const Prices& prices = {});

/// Shares are 0 to 1; throws Error(User) for others.
void check_share(double share);

std::string print(const Joint& joint, const Partition& partition);

}  // namespace bolt::autograd

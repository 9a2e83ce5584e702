// run/folds.h
// What a program computed of parameters beforehand (folded, packed weights) -> what a call may use of it.
//
// Once for each set of parameter tensors, and again when one of them changed: their identity, memory, version
// counters and a few of their words are compared at each call (weight.h).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "run/execution.h"
#include "run/weight.h"

namespace bolt::run {

class Folds {
 public:
  /// What fits these inputs: of an earlier call, or computed now.
  std::shared_ptr<const FoldedBuffers> of(const Prepared& p, const std::vector<at::Tensor>& inputs,
                                          const std::shared_ptr<const Shapes>& shapes);

 private:
  struct Folded {
    std::vector<Weight> weights;  // of Prepared::fold_inputs
    FoldedBuffers buffers;

    bool matches(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const;
    /// Of the same tensors, whose contents have changed since: nobody will ask for it again.
    bool is_stale(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const;
  };

  std::mutex mutex_;
  std::vector<std::shared_ptr<Folded>> known_;  // the oldest first
};

}  // namespace bolt::run

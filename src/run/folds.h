// run/folds.h
// What a program computed of parameters beforehand (folded, packed weights) -> what a call may use of it.
//
// Once for each set of parameter tensors, and again when one of them changed: their identity, memory, version
// counters and a few of their words are compared at each call (weight.h).
//
// Parameters that are being trained change before nearly every call, and folding them each time costs more
// than it saves. So it is counted how many calls each folding served. Where that were few, several times in a
// row, the program is better run without folding (Compiled::unfolded), until the parameters have stayed the
// same for a while.
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

  /// Did the last foldings serve few calls? If not, `keep_changing` need not be asked.
  bool were_short_lived();
  /// Do the parameters change so often that nothing should be folded? Asked once a call. `is_there`: the
  /// program that folds nothing, so that what was folded is let go of. Until it is, calls that find the same
  /// parameters go on using that.
  bool keep_changing(const std::vector<int>& fold_inputs, const std::vector<at::Tensor>& inputs,
                     bool is_there);

 private:
  struct Folded {
    std::vector<Weight> weights;  // of Prepared::fold_inputs
    FoldedBuffers buffers;
    int calls = 0;  // that it served

    bool matches(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const;
    /// Of the same tensors, whose contents have changed since: nobody will ask for it again.
    bool is_stale(const std::vector<at::Tensor>& inputs, const std::vector<int>& which) const;
  };

  std::mutex mutex_;
  std::vector<std::shared_ptr<Folded>> known_;  // the oldest first
  int short_lived_ = 0;                         // foldings in a row that served few calls
  std::vector<uint32_t> versions_;              // of the fold inputs, while nothing is folded
  int unchanged_ = 0;                           // calls in a row that found these
};

}  // namespace bolt::run

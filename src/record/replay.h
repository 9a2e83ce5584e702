// record/replay.h
// A tape that is replayed by somebody who wants to see each entry's call and what came of it. (recorder.h has
// the replay for those who only want the results.)
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "record/generators.h"
#include "record/tape.h"

namespace bolt::record {

/// Told of each entry, by its index, and of what it is called with, or of what it has given.
using ReplayWatch = std::function<void(size_t, const torch::jit::Stack&)>;
/// Told of each entry before it is called: true where it has put the results in the place of the arguments.
using ReplayInstead = std::function<bool(size_t, torch::jit::Stack&)>;

struct ReplayOptions {
  std::function<int64_t(Sym)> value;  ///< of the numbers that are expressions; none: what was recorded
  ReplayWatch before, after;
  CallGenerators generators;
  ReplayInstead instead;
  /// Of numbers that were taken out of tensors: what one is, which is read in the tensor otherwise.
  std::function<c10::IValue(const at::Tensor&, const Arg&)> number_out_of;
  bool follows = false;  ///< autograd does, also where it did not in the recorded run
  /// Tensors under vmap among the inputs. What is made apart from them, and written to later, is made of
  /// them, too, since no operator of theirs writes to what is not.
  std::vector<at::Tensor> batched;
};

/// See replay in recorder.h.
std::vector<at::Tensor> replay_watched(const Tape& tape, const std::vector<at::Tensor>& inputs,
                                       const std::vector<TensorId>& wanted, ReplayOptions options);

}  // namespace bolt::record

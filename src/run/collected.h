// run/collected.h
// The memory of a call whose steps have run -> its outputs that are tensors of the program's.
#pragma once

#include <optional>
#include <vector>

#include "run/call_memory.h"

namespace bolt::run {

/// The mode that a tensor is made in stays with it.
at::Tensor made_in(std::optional<bool> inference_mode, at::Tensor t);

class Collected {
 public:
  explicit Collected(const Prepared& prepared) : p_(prepared) {}

  /// Before the steps run: what the caller can see has been written when they are collected, and nothing may
  /// fail any more.
  void make_copies(const CallMemory& memory);
  /// The outputs in order; those that are no fresh tensors, or whose place is 0 in `wanted`, stay undefined.
  /// `modes`: by output, whether it was made in inference mode; none: no operator made it. An empty `wanted`
  /// stands for all.
  std::vector<at::Tensor> collect(CallMemory& memory, const std::vector<std::optional<bool>>& modes,
                                  const std::vector<char>& wanted);
  void drop_copies() { copies_.clear(); }

 private:
  template <class Each>
  void for_fresh(const CallMemory& memory, Each each) const;

  const Prepared& p_;
  std::vector<at::Tensor> copies_;  // by output: its memory, where that is not the memory of its buffer
};

}  // namespace bolt::run

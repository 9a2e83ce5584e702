// guard/overlap.h
// Does a tensor that a program writes share memory with another one, which it did not do when the program was
// recorded? Asked in each call, of all the parameters, gradients and states of an optimizer: their memory is
// gone through once, in the order in which it lies, which is that of the last call as a rule.
#pragma once

#include <cstdint>
#include <vector>

#include "guard/tensors.h"

namespace bolt::guard {

class Overlap {
 public:
  /// `family`: by slot, the same for tensors that may share memory.
  void expect(std::vector<uint32_t> family, const std::vector<int>& written);
  /// A written slot whose tensor shares memory with one of another family, or -1.
  int find(c10::TensorImpl* const* impls);

 private:
  struct Range {
    uintptr_t begin, end;
    uint32_t slot;
  };
  int find_in_ranges();
  int find_odd(c10::TensorImpl* const* impls) const;

  std::vector<uint32_t> family_;  ///< by slot
  std::vector<char> written_;     ///< by slot
  bool any_written_ = false;
  std::vector<Range> ranges_;
  std::vector<uint32_t> order_;  ///< slots as their memory lay in the last call
  std::vector<uint32_t> odd_;    ///< slots whose memory is no range of addresses
};

}  // namespace bolt::guard

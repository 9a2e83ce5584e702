// graph/attention_heads.h
// Attention of any number of dimensions -> which of them stays the heads, where all others before the last
// two become one.
//
// Windows of an image and rows of a sequence are batches as others are. Which dimension stays is chosen so
// that the others are one as they lie, if there is such a one.
#pragma once

#include <vector>

namespace bolt::graph {

constexpr int kWithinHead = 2;  ///< positions and width

/// May all dimensions before the last two but this one be seen as one?
template <class Sizes, class Strides>
bool are_one_as_they_lie(const Sizes& sizes, const Strides& strides, int heads) {
  int before = -1;
  for (int d = 0; d < static_cast<int>(sizes.size()) - kWithinHead; ++d) {
    if (d == heads || sizes[d] == 1) continue;
    if (before >= 0 && strides[before] != sizes[d] * strides[d]) return false;
    before = d;
  }
  return true;
}

/// -1: none stays, one is put in. `are_one`: may all dimensions but this one?
template <class AreOne>
int heads_among(int rank, const AreOne& are_one) {
  const int last = rank - kWithinHead - 1;
  if (last < 1) return -1;
  for (int heads = last; heads >= 0; --heads)
    if (are_one(heads)) return heads;
  return last;
}

/// The dimensions that become one, then the heads, then the last two.
inline std::vector<int> with_heads_last(int rank, int heads) {
  std::vector<int> order;
  for (int d = 0; d < rank - kWithinHead; ++d)
    if (d != heads) order.push_back(d);
  if (heads >= 0) order.push_back(heads);
  for (int d = rank - kWithinHead; d < rank; ++d) order.push_back(d);
  return order;
}

}  // namespace bolt::graph

// guard/overlap.cpp
#include "guard/overlap.h"

#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <numeric>

namespace bolt::guard {
namespace {

/// The furthest end of memory so far, and the furthest of another family.
class Furthest {
 public:
  void add(uintptr_t end, uint32_t family, uint32_t slot) {
    if (family == best_.family && best_.end) {
      best_.end = std::max(best_.end, end);
    } else if (end > best_.end) {
      other_ = best_;
      best_ = {end, family, slot};
    } else if (end > other_.end) {
      other_ = {end, family, slot};
    }
  }
  /// Of those that reach beyond `begin`, one that is not of this family; null: there is none.
  const uint32_t* beyond(uintptr_t begin, uint32_t family) const {
    const Reach& reach = best_.end && best_.family == family ? other_ : best_;
    return reach.end > begin ? &reach.slot : nullptr;
  }

 private:
  struct Reach {
    uintptr_t end = 0;
    uint32_t family = 0, slot = 0;
  };
  Reach best_, other_;  ///< of different families
};

}  // namespace

void Overlap::expect(std::vector<uint32_t> family, const std::vector<int>& written) {
  family_ = std::move(family);
  written_.assign(family_.size(), 0);
  for (int slot : written) written_[slot] = 1;
  any_written_ = !written.empty();
  order_.resize(family_.size());
  std::iota(order_.begin(), order_.end(), 0);
}

int Overlap::find(c10::TensorImpl* const* impls) {
  if (!any_written_) return -1;
  ranges_.clear();
  odd_.clear();
  for (const uint32_t slot : order_) {
    const c10::TensorImpl& impl = *impls[slot];
    if (!impl.has_storage()) continue;
    const c10::StorageImpl* storage =
        impl.is_python_dispatch() ? nullptr : impl.unsafe_storage().unsafeGetStorageImpl();
    const auto begin = storage ? reinterpret_cast<uintptr_t>(storage->data()) : 0;
    if (begin && storage->nbytes() > 0)
      ranges_.push_back({begin, begin + storage->nbytes(), slot});
    else
      odd_.push_back(slot);
  }
  const int found = find_in_ranges();
  return found >= 0 ? found : find_odd(impls);
}

int Overlap::find_in_ranges() {
  auto lies_before = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(ranges_.begin(), ranges_.end(), lies_before)) {
    std::sort(ranges_.begin(), ranges_.end(), lies_before);
    // The next call begins with this order; those without a range stay behind.
    std::vector<char> has_range(order_.size(), 0);
    std::vector<uint32_t> order;
    for (const Range& range : ranges_) {
      order.push_back(range.slot);
      has_range[range.slot] = 1;
    }
    for (const uint32_t slot : order_)
      if (!has_range[slot]) order.push_back(slot);
    order_ = std::move(order);
  }
  Furthest of_all, of_written;
  for (const Range& range : ranges_) {
    const uint32_t family = family_[range.slot];
    if (written_[range.slot]) {
      if (of_all.beyond(range.begin, family)) return static_cast<int>(range.slot);
      of_written.add(range.end, family, range.slot);
    } else if (const uint32_t* written = of_written.beyond(range.begin, family)) {
      return static_cast<int>(*written);
    }
    of_all.add(range.end, family, range.slot);
  }
  return -1;
}

/// Few, if any: tensors of Python's, without elements, or without data.
int Overlap::find_odd(c10::TensorImpl* const* impls) const {
  for (const uint32_t odd : odd_)
    for (uint32_t slot = 0; slot < family_.size(); ++slot)
      if ((written_[odd] || written_[slot]) && family_[odd] != family_[slot] &&
          share_memory(*impls[odd], *impls[slot]))
        return static_cast<int>(written_[slot] ? slot : odd);
  return -1;
}

}  // namespace bolt::guard

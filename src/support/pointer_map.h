// support/pointer_map.h
// A map from addresses to small values that only grows: open addressing, no allocation per entry. Recordings
// look objects up by address at every instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bolt {

/// An address has zeros at its end, and what is allocated together differs only above them.
inline size_t hash_address(const void* address) {
  const uint64_t h = reinterpret_cast<uintptr_t>(address) * uint64_t{0x9E3779B97F4A7C15};
  return static_cast<size_t>(h ^ (h >> 32));
}

template <class Value>
class PointerMap {
 public:
  /// Null when it is not there. Valid until the next entry is made.
  Value* find(const void* key) { return const_cast<Value*>(std::as_const(*this).find(key)); }
  const Value* find(const void* key) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[place(slots_, key)];
    return slot.key ? &slot.value : nullptr;
  }
  /// Makes an entry where there is none. The key is never null.
  Value& operator[](const void* key) {
    if (2 * size_ >= slots_.size()) grow();
    Slot& slot = slots_[place(slots_, key)];
    if (!slot.key) {
      slot.key = key;
      ++size_;
    }
    return slot.value;
  }
  size_t size() const { return size_; }

 private:
  struct Slot {
    const void* key = nullptr;
    Value value{};
  };
  static size_t place(const std::vector<Slot>& slots, const void* key) {
    const size_t mask = slots.size() - 1;
    size_t i = hash_address(key) & mask;
    while (slots[i].key && slots[i].key != key) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    std::vector<Slot> larger(slots_.empty() ? 256 : 2 * slots_.size());
    for (Slot& slot : slots_)
      if (slot.key) larger[place(larger, slot.key)] = std::move(slot);
    slots_ = std::move(larger);
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace bolt

// support/bounded_map.h
// A map of what would be made again where it is not found: it forgets everything when it is full, so that a
// program whose keys never recur does not fill the memory. Who uses a value keeps it (a shared pointer).
#pragma once

#include <cstddef>
#include <utility>

namespace bolt {

/// `Map`: the standard library's, ordered or not.
template <typename Map, size_t kMost>
class BoundedMap {
 public:
  using Key = typename Map::key_type;
  using Value = typename Map::mapped_type;

  /// Null: it is not known, or no more. Valid until the next one is put in.
  const Value* find(const Key& key) const {
    const auto at = known_.find(key);
    return at == known_.end() ? nullptr : &at->second;
  }
  /// What is there for the key: `value`, or what was put in before.
  const Value& put(const Key& key, Value value) {
    if (known_.size() >= kMost && !known_.contains(key)) known_.clear();
    return known_.try_emplace(key, std::move(value)).first->second;
  }

 private:
  Map known_;
};

}  // namespace bolt

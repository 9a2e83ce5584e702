// support/blocks.h
// Objects that keep their addresses, in blocks that double.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace bolt {

template <class T>
class Blocks {
 public:
  Blocks() = default;
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  ~Blocks() {
    while (last_) {
      std::destroy_n(last_->objects(), last_->size);
      Block* before = last_->before;
      operator delete(last_);
      last_ = before;
    }
  }
  T& emplace_back() {
    if (!last_ || last_->size == last_->capacity) add();
    return *new (last_->objects() + last_->size++) T();
  }
  /// In no order that means anything.
  template <class F>
  void for_each(F f) {
    for (Block* block = last_; block; block = block->before)
      std::for_each_n(block->objects(), block->size, f);
  }

 private:
  static constexpr size_t kFirst = 8, kMost = 512;
  struct alignas(T) alignas(void*) Block {
    Block* before;
    size_t size, capacity;
    T* objects() { return reinterpret_cast<T*>(this + 1); }
  };
  void add() {
    const size_t capacity = last_ ? std::min(2 * last_->capacity, kMost) : kFirst;
    last_ = new (operator new(sizeof(Block) + capacity * sizeof(T))) Block{last_, 0, capacity};
  }
  Block* last_ = nullptr;
};

}  // namespace bolt

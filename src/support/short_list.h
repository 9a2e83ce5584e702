// support/short_list.h
// A list whose first few elements lie in the object itself: most lists of a recording have one or two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace bolt {

template <class T, size_t kInside>
class ShortList {
 public:
  ShortList() = default;
  ShortList(const ShortList&) = delete;
  ShortList& operator=(const ShortList&) = delete;
  ~ShortList() {
    std::destroy_n(data_, size_);
    if (data_ != inside()) std::allocator<T>().deallocate(data_, capacity_);
  }

  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

  void push_back(T value) {
    if (size_ == capacity_) grow();
    new (data_ + size_) T(std::move(value));
    ++size_;
  }
  void erase(size_t i) {
    for (; i + 1 < size_; ++i) data_[i] = std::move(data_[i + 1]);
    std::destroy_at(data_ + --size_);
  }

 private:
  T* inside() { return reinterpret_cast<T*>(inside_); }
  void grow() {
    T* larger = std::allocator<T>().allocate(2 * capacity_);
    std::uninitialized_move_n(data_, size_, larger);
    std::destroy_n(data_, size_);
    if (data_ != inside()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = larger, capacity_ = 2 * capacity_;
  }

  T* data_ = inside();
  size_t size_ = 0, capacity_ = kInside;
  alignas(T) std::byte inside_[kInside * sizeof(T)];
};

/// Objects that keep their addresses, in blocks that double.
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

// support/growing.h
// Growing<T>: what a std::vector is, but that its elements stay where they are when it grows. To a recording
// that is half of the memory it writes to: a vector has moved each of its elements once by its end, and the
// larger the part of the cache that is written to, the less is left for the tensors of the run.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

namespace bolt {

template <class T>
class Growing {
  template <class Element, class Owner>
  struct At {
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using reference = Element&;
    using pointer = Element*;
    using iterator_category = std::forward_iterator_tag;
    Element& operator*() const { return (*owner)[i]; }
    Element* operator->() const { return &(*owner)[i]; }
    At& operator++() { return ++i, *this; }
    At operator++(int) { return {owner, i++}; }
    bool operator==(const At& other) const { return i == other.i; }
    Owner* owner = nullptr;
    size_t i = 0;
  };

 public:
  using value_type = T;
  using iterator = At<T, Growing>;
  using const_iterator = At<const T, const Growing>;

  Growing() = default;
  Growing(const Growing& other) {
    for (const T& each : other) push_back(each);
  }
  Growing(Growing&& other) noexcept { swap(other); }
  Growing& operator=(Growing other) noexcept { return swap(other), *this; }
  ~Growing() {
    clear();
    for (size_t k = 0; k < blocks_.size() && blocks_[k]; ++k)
      std::allocator<T>().deallocate(blocks_[k], capacity(k));
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return *place(i); }
  const T& operator[](size_t i) const { return *place(i); }
  T& back() { return *place(size_ - 1); }
  const T& back() const { return *place(size_ - 1); }
  iterator begin() { return {this, 0}; }
  iterator end() { return {this, size_}; }
  const_iterator begin() const { return {this, 0}; }
  const_iterator end() const { return {this, size_}; }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    T*& block = blocks_[block_of(size_)];
    if (!block) block = std::allocator<T>().allocate(capacity(block_of(size_)));
    T& made = *new (place(size_)) T(std::forward<Args>(args)...);
    ++size_;
    return made;
  }
  void push_back(T value) { emplace_back(std::move(value)); }
  void pop_back() { std::destroy_at(place(--size_)); }
  void clear() {
    while (size_ > 0) pop_back();
  }

 private:
  // Block k holds twice as many as the one before, so the place of an element is in the bits of its number.
  static constexpr size_t kFirst = 16, kBlocks = 32;
  static size_t block_of(size_t i) {
    return static_cast<size_t>(std::bit_width(i + kFirst) - std::bit_width(kFirst));
  }
  static size_t capacity(size_t k) { return kFirst << k; }
  T* place(size_t i) const {
    const size_t k = block_of(i);
    return blocks_[k] + (i + kFirst - capacity(k));
  }
  void swap(Growing& other) noexcept {
    std::swap(blocks_, other.blocks_);
    std::swap(size_, other.size_);
  }

  std::array<T*, kBlocks> blocks_{};
  size_t size_ = 0;
};

}  // namespace bolt

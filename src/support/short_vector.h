// support/short_vector.h
// ShortVector<T, n>: a std::vector whose first n elements lie in the object itself. Shapes have few
// dimensions and places few guards; a compiler that allocates for each of them does little else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

namespace bolt {

template <class T, size_t kInside>
class ShortVector {
 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;

  ShortVector() = default;
  explicit ShortVector(size_t n, const T& value = T()) { resize(n, value); }
  ShortVector(std::initializer_list<T> list) : ShortVector(list.begin(), list.end()) {}
  template <std::input_iterator It>
  ShortVector(It first, It last) {
    if constexpr (std::forward_iterator<It>) {
      reserve(static_cast<size_t>(std::distance(first, last)));
      size_ = static_cast<uint32_t>(std::uninitialized_copy(first, last, data_) - data_);
    } else {
      for (; first != last; ++first) push_back(T(*first));
    }
  }
  ShortVector(const ShortVector& other) : ShortVector(other.begin(), other.end()) {}
  ShortVector(ShortVector&& other) noexcept { take(other); }
  ShortVector& operator=(const ShortVector& other) {
    if (this != &other) assign(other.begin(), other.end());
    return *this;
  }
  ShortVector& operator=(ShortVector&& other) noexcept {
    if (this == &other) return *this;
    clear();
    give_back();
    take(other);
    return *this;
  }
  ~ShortVector() {
    clear();
    give_back();
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  auto rbegin() { return std::reverse_iterator(end()); }
  auto rend() { return std::reverse_iterator(begin()); }
  auto rbegin() const { return std::reverse_iterator(end()); }
  auto rend() const { return std::reverse_iterator(begin()); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t n) {
    if (n > capacity_) grow(n);
  }
  void push_back(T value) { emplace_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ < capacity_) return *new (data_ + size_++) T(std::forward<Args>(args)...);
    T made(std::forward<Args>(args)...);  // of an element that is about to move, perhaps
    grow(2 * std::max(size_t{capacity_}, kInside));
    return *new (data_ + size_++) T(std::move(made));
  }
  void pop_back() { std::destroy_at(data_ + --size_); }
  void clear() {
    std::destroy_n(data_, size_);
    size_ = 0;
  }
  void resize(size_t n, const T& value = T()) {
    while (size_ > n) pop_back();
    reserve(n);
    while (size_ < n) push_back(value);
  }
  void assign(size_t n, const T& value) {
    const T copy = value;
    clear();
    resize(n, copy);
  }
  template <std::input_iterator It>
  void assign(It first, It last) {
    *this = ShortVector(first, last);
  }
  T* insert(const T* at, T value) {
    const std::ptrdiff_t place = at - data_;
    push_back(std::move(value));
    std::rotate(data_ + place, end() - 1, end());
    return data_ + place;
  }
  template <std::input_iterator It>
  T* insert(const T* at, It first, It last) {
    const std::ptrdiff_t place = at - data_, before = size_;
    for (; first != last; ++first) push_back(T(*first));
    std::rotate(data_ + place, data_ + before, end());
    return data_ + place;
  }
  T* insert(const T* at, std::initializer_list<T> list) { return insert(at, list.begin(), list.end()); }
  T* erase(const T* at) { return erase(at, at + 1); }
  T* erase(const T* first, const T* last) {
    T* to = data_ + (first - data_);
    T* kept = std::move(data_ + (last - data_), end(), to);
    std::destroy(kept, end());
    size_ = static_cast<uint32_t>(kept - data_);
    return to;
  }

  template <class F>
  friend size_t erase_if(ShortVector& v, F&& f) {
    const T* kept = std::remove_if(v.begin(), v.end(), f);
    const auto removed = static_cast<size_t>(v.end() - kept);
    v.erase(kept, v.end());
    return removed;
  }

  friend bool operator==(const ShortVector& a, const ShortVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator<(const ShortVector& a, const ShortVector& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  T* inside() { return reinterpret_cast<T*>(inside_); }
  void give_back() {
    if (data_ != inside()) std::allocator<T>().deallocate(data_, capacity_);
    data_ = inside();
    capacity_ = kInside;
  }
  /// What `other` holds; this one is empty, and so is `other` then.
  void take(ShortVector& other) {
    if (other.data_ == other.inside()) {
      std::uninitialized_move_n(other.data_, other.size_, data_);
      size_ = other.size_;
      other.clear();
    } else {
      data_ = std::exchange(other.data_, other.inside());
      size_ = std::exchange(other.size_, 0);
      capacity_ = std::exchange(other.capacity_, uint32_t{kInside});
    }
  }
  void grow(size_t n) {
    T* larger = std::allocator<T>().allocate(n);
    std::uninitialized_move_n(data_, size_, larger);
    std::destroy_n(data_, size_);
    give_back();
    data_ = larger;
    capacity_ = static_cast<uint32_t>(n);
  }

  T* data_ = inside();
  uint32_t size_ = 0, capacity_ = kInside;
  alignas(T) std::byte inside_[kInside * sizeof(T)];
};

}  // namespace bolt

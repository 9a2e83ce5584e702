// support/rare_vector.h
// RareVector<T>: a std::vector that is nearly always empty, and then one pointer large.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace bolt {

template <class T>
class RareVector {
 public:
  RareVector() = default;
  RareVector(const RareVector& other) : all_(other.all_ ? std::make_unique<Vector>(*other.all_) : nullptr) {}
  RareVector(RareVector&& other) noexcept = default;
  RareVector& operator=(RareVector other) noexcept { return std::swap(all_, other.all_), *this; }
  RareVector& operator=(std::vector<T> all) {
    all_ = all.empty() ? nullptr : std::make_unique<Vector>(std::move(all));
    return *this;
  }
  ~RareVector() = default;

  bool empty() const { return !all_; }
  size_t size() const { return all_ ? all_->size() : 0; }
  T& operator[](size_t i) { return (*all_)[i]; }
  const T& operator[](size_t i) const { return (*all_)[i]; }
  T* begin() { return all_ ? all_->data() : nullptr; }
  T* end() { return begin() + size(); }
  const T* begin() const { return all_ ? all_->data() : nullptr; }
  const T* end() const { return begin() + size(); }
  void clear() { all_ = nullptr; }
  friend bool operator==(const RareVector& a, const RareVector& b) {
    return a.all_ && b.all_ ? *a.all_ == *b.all_ : a.all_ == b.all_;
  }

 private:
  using Vector = std::vector<T>;
  std::unique_ptr<Vector> all_;  ///< null: none. Never an empty one
};

}  // namespace bolt

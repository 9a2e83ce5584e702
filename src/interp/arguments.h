// interp/arguments.h
// What calls are given, as vectorcall has it: how much it is, and arrays in the making, which can grow in
// front (self) and behind (keywords).
#pragma once

#include <memory>
#include <vector>

#include "python/compat.h"

namespace bolt::interp {

/// An array of borrowed arguments, on the stack when short.
class Arguments {
 public:
  explicit Arguments(size_t capacity) {
    if (capacity > kInline) many_.reset(new PyObject*[capacity]);
    data_ = many_ ? many_.get() : few_;
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void add(PyObject* value) { data_[size_++] = value; }
  void add(PyObject* const* values, size_t n) {
    for (size_t i = 0; i < n; ++i) data_[size_++] = values[i];
  }
  PyObject* const* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kInline = 12;
  PyObject* few_[kInline];
  std::unique_ptr<PyObject*[]> many_;
  PyObject** data_;
  size_t size_ = 0;
};

inline size_t keyword_count(PyObject* kwnames) {
  return kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0;
}

/// `self` (null: there is none) in front of all that is given.
inline std::vector<PyObject*> all_given(PyObject* self, PyObject* const* args, size_t nargs,
                                        PyObject* kwnames) {
  std::vector<PyObject*> all;
  if (self) all.push_back(self);
  all.insert(all.end(), args, args + nargs + keyword_count(kwnames));
  return all;
}

}  // namespace bolt::interp

// guard/tensor_numbers.h
// A number in a tensor that belongs to the model (an epsilon in a buffer, a flag, a stride) -> the number as
// a Python object, and the question whether the tensor still holds it: TensorNumber.
//
// In memory that the processor reads, the answer is the element's own bytes, which no write gets past. On
// another device they would have to be waited for. There the answer is which tensor it is, where its memory
// lies and its version counter; where memory was handed out to somebody who may write past the counter
// (handed_out.h), it is read again.
#pragma once

#include <c10/core/TensorImpl.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "guard/handed_out.h"
#include "python/py_ref.h"

namespace bolt::guard {

/// Of `Access::tensor_number`: the only element of a tensor that has one.
constexpr Py_ssize_t kOnlyElement = -1;

/// The element of `base` that is element `element` of `view`, both in the order of their indices; nothing: it
/// shows none of them, or not in a way that is understood here.
std::optional<Py_ssize_t> element_of(PyObject* base, PyObject* view, Py_ssize_t element);

class TensorNumber {
 public:
  /// `as`: the class that it is made one of (float, int, bool), borrowed for good; null: what item() gives.
  TensorNumber(PyObject* tensor, Py_ssize_t element, PyObject* as);

  /// Does `tensor` hold it? If so it need not be read again.
  bool is_in(PyObject* tensor) const;
  /// Null: there is no such element, or no number of Python's is it.
  PyObject* number() const { return number_.get(); }

 private:
  static constexpr size_t kMostBytes = 8;
  /// What is known of memory that is not the processor's. The counter and the storage are held so that
  /// nothing else gets their addresses.
  struct Elsewhere {
    const c10::TensorImpl* tensor;
    c10::VariableVersion version;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    uint32_t writes;
    std::shared_ptr<HandedOut> handed_out;
    uint64_t times;
  };
  bool is_unwritten(const c10::TensorImpl& impl) const;

  Py_ssize_t element_;
  PyRef number_;
  caffe2::TypeMeta dtype_;
  const void* place_ = nullptr;
  std::array<std::byte, kMostBytes> bytes_{};
  std::optional<Elsewhere> elsewhere_;
};

}  // namespace bolt::guard

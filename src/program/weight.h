// program/weight.h
// Weight: a tensor whose contents a program has used beforehand (folded, packed), and the question whether it
// still holds them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace bolt::program {

class Weight {
 public:
  explicit Weight(const at::Tensor& tensor);

  /// The same contents, for all that can be seen in a few words.
  bool is(const at::Tensor& tensor) const;
  /// The same tensor, whatever it holds now.
  bool was(const at::Tensor& tensor) const { return tensor.unsafeGetTensorImpl() == address_; }
  /// Its memory is gone.
  bool is_gone() const { return storage_.expired(); }

 private:
  // Both are held so that nothing else gets their addresses. The tensor itself must not be, not even weakly:
  // torch.utils.swap_tensors, and with it Module.to(), refuses tensors that somebody else refers to.
  c10::VariableVersion version_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  const void *counter_, *memory_, *data_;
  const c10::TensorImpl* address_;
  uint32_t number_;
  std::array<uint64_t, 4> sample_;
};

}  // namespace bolt::program

// run/weight.h
// Weight: a tensor whose contents a program has used beforehand (folded, packed), and the question whether it
// still holds them.
//
// Answered by identity, the version counter and four words sampled from the contents. Where somebody may have
// written past the counter, or still may, all of the contents are compared, by their hash.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "device/device.h"
#include "guard/handed_out.h"

namespace bolt::run {

class Weight {
 public:
  explicit Weight(const at::Tensor& tensor);

  /// Has `tensor` the contents that it had?
  bool is(const at::Tensor& tensor) const;
  /// Is `tensor` the one that it was, whatever that holds now?
  bool was(const at::Tensor& tensor) const { return tensor.unsafeGetTensorImpl() == address_; }
  /// Its memory is gone.
  bool is_gone() const { return storage_.expired(); }

 private:
  bool holds_same(const c10::TensorImpl& impl) const;

  // Counter and storage are held so that nothing else gets their addresses. The tensor must not be, even
  // weakly: torch.utils.swap_tensors, and with it Module.to(), refuses tensors that somebody else refers to.
  c10::VariableVersion version_;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  const void *counter_, *memory_, *data_;
  const c10::TensorImpl* address_;
  uint32_t number_;
  const device::DeviceInterface* device_;
  device::DeviceInterface::Sample sample_;
  std::optional<uint64_t> hash_;  ///< none: contents that may have changed count as changed
  std::shared_ptr<guard::HandedOut> handed_out_;
  mutable uint64_t times_;    ///< of those that have been looked after
  mutable bool has_aliases_;  ///< somebody who was handed the memory may still hold it
};

}  // namespace bolt::run

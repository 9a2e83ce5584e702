// guard/handed_out.h
// Memory that programs have used beforehand (folded, packed weights, numbers) -> how often it was handed out
// unseen.
//
// Writes through `w.data`, `w.numpy()`, DLPack, storages and pointers change no version counter of `w`.
// Whoever wants to write so asks the tensor first, and what answers is a handful of C functions of torch.
// They are wrapped in place, once: each does what it did, and then notes the storage, also of memory that a
// program may come to use later. (What C++ extensions do to a tensor that they are given nobody sees.)
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <memory>

namespace bolt::guard {

/// Of one storage, as long as it lives.
struct HandedOut {
  std::atomic<uint64_t> times{0};
  std::atomic<bool> for_good{
      false};  ///< a DLPack capsule keeps the tensor itself, so nothing tells when it goes
};

/// Can somebody still write to the memory past the counter? Who holds it without having been handed it so (a
/// state_dict, a view) counts its writes.
bool may_have_aliases(const c10::TensorImpl& impl, const HandedOut& handed_out);

/// The address of the counter that a tensor shares with its views; null of inference tensors.
const void* counter_of(const c10::VariableVersion& version);

std::shared_ptr<HandedOut> watch(const c10::Storage& storage);

/// The memory of `t` is handed out, or was written, by what is wrapped nowhere: regions.
void note_handed_out(const at::Tensor& t);

/// Memory that belongs to somebody else, who may write it at any time: from_numpy, from_dlpack.
bool is_borrowed(const c10::StorageImpl& storage);

/// Wraps torch's functions. False: a Python error.
bool notice_hand_outs();

}  // namespace bolt::guard

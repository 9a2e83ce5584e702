// autograd/fake.h
// Tensors without memory, for which ATen's own autograd writes the backward pass.
//
// A Fake has the device, element type, sizes and strides of a tensor of the tape, and a dispatch key below
// autograd's. So composite operators fall apart and nodes are made as for a real tensor, and what would then
// compute arrives at one boxed fallback, which hands it to the Listener of the thread. Fakes that are views
// of one another share a storage (of the meta device, without memory): who touches their data gets an
// exception of torch's and never an address.
//
// The number of a Fake travels with it into the copies that autograd makes of what it saves.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "record/tape.h"

namespace bolt::autograd {

class Fake final : public c10::TensorImpl {
 public:
  Fake(c10::Storage storage, caffe2::TypeMeta dtype, c10::Device device, record::TensorId id);

  c10::Device device_custom() const override { return device_; }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool may_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool may_change) const override;

  record::TensorId id;

 private:
  template <class Version>
  c10::intrusive_ptr<TensorImpl> copy(Version&& version, bool may_change) const;
  c10::Device device_;
};

/// Null: it is a real one.
Fake* as_fake(const at::Tensor& t);

/// What fakes are made of: where its elements would lie.
struct FakeLayout {
  at::IntArrayRef sizes, strides;
  int64_t offset = 0;
};
at::Tensor make_fake(const c10::Storage& storage, at::ScalarType dtype, c10::Device device, FakeLayout place,
                     record::TensorId id);
/// What is a tensor of the meta device instead, for kernels that say what a result is like.
at::Tensor make_meta(const c10::Storage& storage, at::ScalarType dtype, FakeLayout place);
/// Of as many bytes, and no memory.
c10::Storage make_storage(size_t bytes);

/// Who is told of every operator that arrives below autograd.
class Listener {
 public:
  virtual ~Listener() = default;
  /// Takes the arguments off the stack and puts the results there.
  virtual void call(const c10::OperatorHandle& op, torch::jit::Stack& stack) = 0;
};

/// While it lives, operators of this thread that no autograd takes go to `listener`, also those that are
/// given no tensor (zeros). Nothing else that the thread has going on sees them: autocast, modes of Python's,
/// transforms, hooks of saved tensors.
class Listening {
 public:
  explicit Listening(Listener& listener);
  ~Listening();
  Listening(const Listening&) = delete;

 private:
  Listener* before_;
  bool tracing_;  ///< of saved tensors' hooks: whether they were put off already
  c10::InferenceMode tracked_{false};
  c10::impl::ForceDispatchKeyGuard keys_;
};

/// While it lives, kernels of ours, and of the meta device, run below everything that fakes meet.
struct Below {
  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::impl::ExcludeDispatchKeyGuard fakes{c10::DispatchKey::Fake};
};

}  // namespace bolt::autograd

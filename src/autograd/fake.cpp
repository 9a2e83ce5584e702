// autograd/fake.cpp
#include "autograd/fake.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/library.h>

#include <utility>

#include "support/error.h"

namespace bolt::autograd {
namespace {

thread_local Listener* active = nullptr;

c10::DispatchKey autograd_key(c10::Device device) {
  if (device.is_cpu()) return c10::DispatchKey::AutogradCPU;
  if (device.is_cuda()) return c10::DispatchKey::AutogradCUDA;
  throw_unsupported("gradients on the device ", device.str());
}

c10::DispatchKeySet keys_for(c10::Device device) {
  return c10::DispatchKeySet(
      {c10::DispatchKey::Fake, c10::DispatchKey::ADInplaceOrView, autograd_key(device)});
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (!active) throw_unsupported(op.operator_name().name, " of a tensor that only stands for another one");
  active->call(op, *stack);
}

void place(c10::TensorImpl& impl, const FakeLayout& place) {
  impl.set_sizes_and_strides(place.sizes, place.strides, place.offset);
}

}  // namespace

Fake::Fake(c10::Storage storage, caffe2::TypeMeta dtype, c10::Device device, record::TensorId id)
    : TensorImpl(std::move(storage), keys_for(device), dtype), id(id), device_(device) {
  set_custom_device(true);
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> Fake::copy(Version&& version, bool may_change) const {
  auto made = c10::make_intrusive<Fake>(storage(), dtype(), device_, id);
  copy_tensor_metadata(this, made.get(), std::forward<Version>(version), may_change);
  return made;
}

c10::intrusive_ptr<c10::TensorImpl> Fake::shallow_copy_and_detach(const c10::VariableVersion& version,
                                                                  bool may_change) const {
  return copy(version, may_change);
}

c10::intrusive_ptr<c10::TensorImpl> Fake::shallow_copy_and_detach(c10::VariableVersion&& version,
                                                                  bool may_change) const {
  return copy(std::move(version), may_change);
}

Fake* as_fake(const at::Tensor& t) {
  if (!t.defined() || !t.key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return dynamic_cast<Fake*>(t.unsafeGetTensorImpl());
}

at::Tensor make_fake(const c10::Storage& storage, at::ScalarType dtype, c10::Device device, FakeLayout where,
                     record::TensorId id) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  at::Tensor made = at::detail::make_tensor<Fake>(storage, type, device, id);
  place(*made.unsafeGetTensorImpl(), where);
  return made;
}

at::Tensor make_meta(const c10::Storage& storage, at::ScalarType dtype, FakeLayout where) {
  const caffe2::TypeMeta type = c10::scalarTypeToTypeMeta(dtype);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::Meta), type);
  place(*made.unsafeGetTensorImpl(), where);
  return made;
}

c10::Storage make_storage(size_t bytes) {
  return c10::Storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, c10::kMeta), nullptr,
                      false);
}

// Nothing may throw once the thread has been changed.
Listening::Listening(Listener& listener)
    : before_(std::exchange(active, &listener)),
      tracing_(at::SavedTensorDefaultHooks::set_tracing(true)),
      keys_(c10::default_included_set.add(c10::DispatchKey::Fake),
            c10::default_excluded_set | c10::autocast_dispatch_keyset) {}

Listening::~Listening() {
  active = before_;
  at::SavedTensorDefaultHooks::set_tracing(tracing_);
}

TORCH_LIBRARY_IMPL(_, Fake, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace bolt::autograd

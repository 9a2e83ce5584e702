// run/call_memory.cpp
#include "run/call_memory.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "record/convert.h"

namespace bolt::run {

using loops::BufferKind;
using loops::PlanBuffer;

namespace {

constexpr int64_t kAlignment = 64;  // of what lies in an arena

}  // namespace

// ---- a call ----

void CallMemory::take_shapes(std::shared_ptr<const Shapes> shapes) {
  shapes_ = std::move(shapes);
  slots_.assign(p_.plan.buffers.size(), {});
  arenas_.resize(p_.plan.arenas.size());
  for (size_t i = 0; i < arenas_.size(); ++i)
    if (keeps(i)) make_arena(i);
}

void CallMemory::make_arenas() {
  for (size_t i = 0; i < arenas_.size(); ++i)
    if (!keeps(i)) make_arena(i);
}

void CallMemory::make_arena(size_t arena) {
  const int64_t bytes = shapes_->arena_bytes[arena];
  if (bytes == 0) return;
  const size_t at = p_.device_of_arena[arena];
  if (!arenas_[arena].defined() || arenas_[arena].numel() < bytes + kAlignment)
    arenas_[arena] = p_.devices[at].driver->arena(p_.devices[at].device, bytes + kAlignment);
  const auto begin = reinterpret_cast<uintptr_t>(arenas_[arena].data_ptr());
  char* base = reinterpret_cast<char*>((begin + kAlignment - 1) & ~uintptr_t{kAlignment - 1});
  for (size_t i = 0; i < p_.plan.buffers.size(); ++i)
    if (p_.lies_in_arena(i) && p_.device_of_buffer[i] == at)
      slots_[i] = {base + shapes_->buffers[i].arena_offset, {}};
}

void CallMemory::drop_arena(size_t arena) {
  arenas_[arena].reset();
  for (size_t i = 0; i < p_.plan.buffers.size(); ++i)
    if (p_.lies_in_arena(i) && p_.device_of_buffer[i] == p_.device_of_arena[arena]) slots_[i] = {};
}

void CallMemory::bind(const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < p_.plan.buffers.size(); ++i) {
    const PlanBuffer& b = p_.plan.buffers[i];
    const int buffer = static_cast<int>(i);
    if (b.kind == BufferKind::Input)
      put(buffer, inputs[b.source]);
    else if (b.kind == BufferKind::Output && !b.owned_by_step && !p_.waits(i) && !p_.made_by_step(i) &&
             !slots_[i].data)
      make_output(buffer);
  }
}

void CallMemory::end() {
  for (size_t i = 0; i < slots_.size(); ++i)
    if (!p_.lies_in_arena(i)) slots_[i] = {};  // memory and tensors of the others stay valid
  for (size_t i = 0; i < arenas_.size(); ++i)
    if (!keeps(i)) drop_arena(i);
  places_.clear();
}

void CallMemory::bind_folds(const std::vector<at::Tensor>& inputs, std::shared_ptr<const Shapes> shapes) {
  shapes_ = std::move(shapes);  // whatever they are: what is folded has known sizes
  slots_.assign(p_.plan.buffers.size(), {});
  for (size_t i = 0; i < p_.plan.buffers.size(); ++i) {
    const PlanBuffer& b = p_.plan.buffers[i];
    const int buffer = static_cast<int>(i);
    if (b.kind == BufferKind::Input &&
        std::binary_search(p_.fold_inputs.begin(), p_.fold_inputs.end(), b.source)) {
      put(buffer, inputs[b.source]);
    } else if (b.kind == BufferKind::Fold || p_.in_fold[i]) {
      // Written by kernels; steps that own their result replace it. Also outputs without elements are read.
      if (!b.owned_by_step)
        put(buffer, at::empty_strided(shape(buffer).sizes, shape(buffer).strides, options(buffer)));
    }
  }
}

// ---- one buffer ----

at::TensorOptions CallMemory::options(int buffer) const {
  return at::TensorOptions()
      .dtype(record::to_torch(p_.buffer(buffer).type.dtype))
      .device(p_.devices[p_.device_of_buffer[buffer]].device);
}

at::Tensor CallMemory::over(int buffer, void* data) const {
  const at::TensorOptions o = options(buffer);
  return at::for_blob(data, shape(buffer).sizes)
      .strides(shape(buffer).strides)
      .target_device(o.device())
      .options(o)
      .make_tensor();
}

void CallMemory::put(int buffer, at::Tensor tensor) {
  slot(buffer).data = tensor.data_ptr();
  slot(buffer).tensor = std::move(tensor);
}

const at::Tensor& CallMemory::tensor(int buffer) {
  BufferInCall& s = slot(buffer);
  if (s.tensor.defined()) return s.tensor;
  const PlanBuffer& b = p_.buffer(buffer);
  if (b.kind == BufferKind::Alias) {
    const at::Tensor& base = tensor(b.source);
    put(buffer, base.as_strided(shape(buffer).sizes, shape(buffer).strides,
                                base.storage_offset() + shape(buffer).offset));
  } else {
    BOLT_CHECK(s.data, "buffer ", buffer, " is used before it is made");
    put(buffer, over(buffer, s.data));
  }
  return s.tensor;
}

void* CallMemory::pointer(int buffer) {
  if (void* data = slot(buffer).data) return data;
  const PlanBuffer& b = p_.buffer(buffer);
  if (b.kind != BufferKind::Alias) return tensor(buffer).data_ptr();
  // As tensor() has it. Whoever asks for a place alone is not given views, each a way through the dispatcher.
  const int64_t bytes = dtype_bytes(p_.buffer(b.source).type.dtype);
  return static_cast<char*>(pointer(b.source)) + shape(buffer).offset * bytes;
}

void CallMemory::make_output(int buffer) {
  const UsedDevice& d = p_.devices[p_.device_of_buffer[buffer]];
  put(buffer, d.driver->result(d.device, shape(buffer).sizes, shape(buffer).strides,
                               record::to_torch(p_.buffer(buffer).type.dtype)));
}

void CallMemory::make(int buffer) {
  const PlanBuffer& b = p_.buffer(buffer);
  if (b.kind == BufferKind::Output && slot(buffer).data) return;
  void* place = b.over >= 0 ? slot(b.over).data : nullptr;
  if (place)
    put(buffer, place);
  else
    make_output(buffer);
}

const at::Tensor* CallMemory::place_of(int buffer) const {
  const auto found = places_.find(buffer);
  return found == places_.end() ? nullptr : &found->second;
}

}  // namespace bolt::run

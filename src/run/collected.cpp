// run/collected.cpp
#include "run/collected.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>

#include <utility>

namespace bolt::run {

using loops::BufferKind;

at::Tensor made_in(std::optional<bool> inference_mode, at::Tensor t) {
  if (!inference_mode || *inference_mode == t.is_inference()) return t;
  const c10::InferenceMode mode(*inference_mode);
  return at::empty({0}, t.options()).set_(t.storage(), t.storage_offset(), t.sizes(), t.strides());
}

/// Calls `each` with the number of every output that is a tensor of the program's, the buffer, and whether
/// what lies there is the output itself: a result's memory belongs to one output, and has its layout.
template <class Each>
void Collected::for_fresh(const CallMemory& memory, Each each) const {
  std::vector<int> given(p_.plan.buffers.size(), 0);
  for (size_t i = 0; i < p_.lowered.outputs.size(); ++i) {
    const lower::TensorOut& o = p_.lowered.outputs[i];
    if (o.kind != lower::TensorOut::Kind::Fresh) continue;
    const int b = p_.plan.outputs[o.index].buffer, owner = p_.owner(b);
    const loops::PlanBuffer& held = p_.buffer(owner);
    const bool ours =
        held.kind == BufferKind::Output || (held.kind == BufferKind::Temp && held.owned_by_step);
    const Result& want = memory.shapes()->results[i];
    const bool itself = ours && !given[owner]++ && memory.shape(b).sizes == want.sizes &&
                        memory.shape(b).strides == want.strides;
    each(i, b, itself);
  }
}

void Collected::make_copies(const CallMemory& memory) {
  copies_.assign(p_.lowered.outputs.size(), {});
  for_fresh(memory, [&](size_t i, int b, bool itself) {
    const Result& want = memory.shapes()->results[i];
    if (!itself) copies_[i] = at::empty_strided(want.sizes, want.strides, memory.options(b));
  });
}

std::vector<at::Tensor> Collected::collect(CallMemory& memory, const std::vector<std::optional<bool>>& modes,
                                           const std::vector<char>& wanted) {
  std::vector<at::Tensor> out(p_.lowered.outputs.size());
  for_fresh(memory, [&](size_t i, int b, bool itself) {
    if (!wanted.empty() && !wanted[i]) return;
    at::Tensor t = memory.tensor(b);
    const Result& want = memory.shapes()->results[i];
    // Strides of what has no elements are whatever a step gave.
    if (!itself || t.sizes() != at::IntArrayRef(want.sizes) || t.strides() != at::IntArrayRef(want.strides)) {
      at::Tensor copy = i < copies_.size() ? std::move(copies_[i]) : at::Tensor();
      if (!copy.defined()) copy = at::empty_strided(want.sizes, want.strides, t.options());
      shown_once(copy, want.strides).copy_(shown_once(t, want.strides));
      t = std::move(copy);
    }
    out[i] = made_in(i < modes.size() ? modes[i] : std::nullopt, std::move(t));
  });
  copies_.clear();
  return out;
}

}  // namespace bolt::run

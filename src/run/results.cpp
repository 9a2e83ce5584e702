// run/results.cpp
#include "run/results.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "guard/handed_out.h"

namespace bolt::run {

using lower::Lowered;
using lower::TensorOut;

namespace {

at::Tensor view_of(const at::Tensor& of, const TensorOut& o, const Result& r) {
  const at::Tensor base = o.detached && of.requires_grad() ? of.detach() : of;
  return base.as_strided(r.sizes, r.strides, base.storage_offset() + r.offset);
}

}  // namespace

at::Tensor shown_once(at::Tensor t, at::IntArrayRef strides) {
  for (int64_t d = 0; d < t.dim(); ++d)
    if (strides[d] == 0 && t.size(d) > 1) t = t.narrow(d, 0, 1);
  return t;
}

Tensors graph_inputs(const Lowered& lowered, const Tensors& inputs) {
  Tensors out;
  out.reserve(lowered.inputs.size());
  for (int i : lowered.inputs) {
    auto constant = lowered.constants.find(i);
    out.push_back(constant == lowered.constants.end() ? inputs[i] : constant->second);
  }
  return out;
}

void give_views(const Lowered& lowered, const std::vector<Result>& results, const Tensors& inputs,
                bool grad_mode, Tensors& out) {
  // A view remembers the mode it was made in: with it the caller may write what autograd follows into it.
  const at::AutoGradMode as_called(grad_mode);
  for (size_t i = 0; i < out.size(); ++i) {
    const TensorOut& o = lowered.outputs[i];
    const auto at = static_cast<size_t>(o.index);
    if (o.kind == TensorOut::Kind::Input) out[i] = inputs[at];
    if (o.kind == TensorOut::Kind::InputView) out[i] = view_of(inputs[at], o, results[i]);
    if (o.kind == TensorOut::Kind::OutputView) out[i] = view_of(out[at], o, results[i]);
  }
}

void announce_write(const Lowered& lowered, const Tensors& inputs, int graph_input) {
  const at::Tensor& t = inputs[graph_input];
  const int counted = lowered.counted_writes[graph_input];
  for (int i = 0; i < counted; ++i) t.unsafeGetTensorImpl()->bump_version();
  if (counted == 0) guard::note_handed_out(t);
}

void announce_reshaped(const Lowered& lowered, const Tensors& inputs) {
  for (const TensorOut& o : lowered.reshaped) inputs[o.index].unsafeGetTensorImpl()->bump_version();
}

void reshape(const Lowered& lowered, const std::vector<Result>& results, const Tensors& inputs) {
  for (size_t i = 0; i < lowered.reshaped.size(); ++i) {
    const at::Tensor& t = inputs[lowered.reshaped[i].index];
    const Result& r = results[lowered.outputs.size() + i];
    const at::AutoDispatchBelowADInplaceOrView is_counted;
    t.as_strided_(r.sizes, r.strides, t.storage_offset() + r.offset);
  }
}

}  // namespace bolt::run

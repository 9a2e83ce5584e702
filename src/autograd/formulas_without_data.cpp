// autograd/formulas_without_data.cpp
#include "autograd/formulas_without_data.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>

namespace bolt::autograd {
namespace {

using torch::jit::Stack;

/// `x[mask] = v` of a v for all places: the gradient of v would be gathered from as many places as the mask
/// has. As a choice between the two it is a sum.
bool fills_where(const record::Entry& entry, Stack& stack) {
  if (entry.op.operator_name().name != "aten::index_put_" || stack[3].toBool()) return false;
  const at::Tensor self = stack[0].toTensor(), values = stack[2].toTensor();
  const auto indices = stack[1].toOptionalTensorVector();
  if (indices.size() != 1 || !indices[0] || indices[0]->scalar_type() != at::kBool) return false;
  at::Tensor mask = *indices[0];
  if (mask.dim() == 0 || values.dim() > self.dim() - mask.dim()) return false;
  while (mask.dim() < self.dim()) mask = mask.unsqueeze(-1);
  self.copy_(at::where(mask, values, self));
  stack = {self};
  return true;
}

/// (self, target, weight, reduction, ignore_index, label_smoothing): the mean of smoothed labels is one by
/// the weights of those labels that count, which ATen picks out. Here the others are 0. The part of the
/// labels themselves is the operator without smoothing.
bool smooths_weighted_labels(const record::Entry& entry, Stack& stack) {
  if (entry.op.operator_name().name != "aten::cross_entropy_loss" || stack[2].isNone()) return false;
  const at::Tensor self = stack[0].toTensor(), target = stack[1].toTensor(), weight = stack[2].toTensor();
  const double smoothing = stack[5].toDouble();
  const int64_t ignored = stack[4].toInt();
  const bool by_class = at::isIntegralType(target.scalar_type(), false);
  if (!weight.defined() || !by_class || smoothing <= 0 || stack[3].toInt() != at::Reduction::Mean)
    return false;
  const int64_t classes = self.dim() == 1 ? 0 : 1;
  c10::DimVector along(static_cast<size_t>(self.dim()), 1);
  along[classes] = weight.size(0);
  const at::Tensor mask = target == ignored;
  const at::Tensor scores = at::log_softmax(self, classes, self.scalar_type());
  const at::Tensor smooth = (scores * weight.view(along)).sum(classes).neg().masked_fill(mask, 0.0);
  const at::Tensor weights =
      weight.gather(0, target.masked_fill(mask, 0).flatten()).masked_fill(mask.flatten(), 0);
  const at::Tensor hard = at::cross_entropy_loss(self, target, weight, at::Reduction::Mean, ignored, 0.0);
  const double share = smoothing / static_cast<double>(self.size(classes));
  stack = {share * (smooth.sum() / weights.sum()) + (1 - smoothing) * hard};
  return true;
}

}  // namespace

bool call_without_data(const record::Entry& entry, Stack& stack) {
  return fills_where(entry, stack) || smooths_weighted_labels(entry, stack);
}

}  // namespace bolt::autograd

// autograd/selected_rows.cpp
#include "autograd/selected_rows.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <utility>

#include "autograd/row_work.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using torch::jit::Stack;

/// Where hardly anything is singular or out of range, and a label that there is.
at::Scalar harmless_number(at::ScalarType type) {
  if (type == at::kBool) return false;
  constexpr double kBetween = 0.5;  // a probability, an argument of log, of its like from below 1, of a root
  return c10::isFloatingType(type) ? at::Scalar(kBetween) : at::Scalar(0);
}

/// In which a sum of many is added up that is divided afterwards.
at::ScalarType type_of_divided_sum(at::ScalarType type) { return at::toOpMathType(type); }

}  // namespace

SelectedRows::SelectedRows(const record::Tape& run, const std::vector<record::TensorId>& wanted)
    : run_(run), plan_(plan_of_rows(run, wanted)) {
  if (plan_)
    masks_.resize(plan_->masks.size());
  else if (std::ranges::any_of(run.tensors, [](const auto& t) { return t.data_sized; }))
    throw_unsupported("gradients of tensors as large as their data say");
}

bool SelectedRows::gives_rows(size_t entry) const { return plan_ && plan_->gives_rows(run_.entries[entry]); }

/// As many dimensions as rows have behind theirs, of one element each.
at::Tensor SelectedRows::dropped(int group, const at::Tensor& rows, int64_t along) const {
  std::vector<int64_t> sizes(static_cast<size_t>(along), 1);
  sizes[0] = rows.size(rows.dim() - along);
  return masks_[group].dropped.view(sizes);
}

at::Tensor SelectedRows::without_dropped(int group, const at::Tensor& rows, int64_t along) const {
  return rows.masked_fill(dropped(group, rows, along),
                          rows.scalar_type() == at::kBool ? at::Scalar(false) : 0);
}

void SelectedRows::find(int group, Stack& stack) {
  const at::Tensor given = stack[0].toTensor();
  Mask& mask = masks_[group];
  if (!mask.dropped.defined()) {
    const at::Tensor counts = given.scalar_type() == at::kBool ? given : given.ne(0);
    mask.dropped = counts.logical_not().flatten();
    mask.count = counts.sum();
  }
  stack = {at::Tensor()};
}

/// Places have no fakes: who is given them is asked for the mask.
void SelectedRows::hand_on(const Entry& entry, Stack& stack) const {
  const Arg& result = entry.results[0];
  if (result.kind == Arg::Kind::TensorList) {
    c10::List<at::Tensor> none;
    for (size_t i = 0; i < result.tensors.size(); ++i) none.push_back(at::Tensor());
    stack = {none};
  } else {
    stack.resize(1);
  }
}

/// (self, indices) or (self, dim, index)
void SelectedRows::select(size_t entry, Stack& stack) {
  const int group = plan_->groups[entry];
  const int64_t along = plan_->along[entry];
  at::Tensor x = stack[0].toTensor();
  const auto over = static_cast<int64_t>(run_.tensors[plan_->masks[group]].sizes.size());
  const int64_t last = x.dim() - along;
  if (over > 1) x = x.flatten(last - over + 1, last);
  stack = {x.masked_fill(dropped(group, x, along), harmless_number(x.scalar_type()))};
}

at::Tensor SelectedRows::mean(int group, const at::Tensor& summed, int64_t others,
                              at::ScalarType type) const {
  return summed.div(masks_[group].count * others).to(type);
}

/// sum and mean, over all dimensions or over some.
void SelectedRows::reduce(size_t index, Stack& stack) {
  const Entry& entry = run_.entries[index];
  const int group = plan_->groups[index];
  const int64_t along = plan_->along[index];
  at::Tensor rows = stack[0].toTensor();
  if (!stack.back().isNone()) rows = rows.to(stack.back().toScalarType());
  const at::Tensor counted = without_dropped(group, rows, along);
  if (entry.op.operator_name().name == "aten::sum") {
    stack[0] = counted;
    return entry.op.callBoxed(&stack);
  }
  const at::ScalarType type = rows.scalar_type(), wide = type_of_divided_sum(type);
  std::vector<int64_t> dims;
  const bool over_some = entry.op.operator_name().overload_name == "dim" && !stack[1].isNone();
  if (over_some) dims = stack[1].toIntVector();
  if (dims.empty())
    for (int64_t d = 0; d < rows.dim(); ++d) dims.push_back(d);
  int64_t others = 1;
  for (int64_t& d : dims) {
    if (d < 0) d += rows.dim();
    if (d != rows.dim() - along) others *= rows.size(d);
  }
  const bool keeps = entry.op.operator_name().overload_name == "dim" && stack[2].toBool();
  stack = {mean(group, counted.sum(dims, keeps, wide), others, type)};
}

void SelectedRows::loss(size_t index, Stack& stack) {
  const Entry& entry = run_.entries[index];
  const int group = plan_->groups[index];
  const auto place = static_cast<size_t>(*entry.op.schema().argumentIndexWithName("reduction"));
  const bool is_mean = stack[place].toInt() == at::Reduction::Mean;
  const bool of_classes = row_work_of(entry) == RowWork::loss_of_classes;
  const at::Tensor labels = stack[1].toTensor();
  const c10::IValue ignored = of_classes ? stack[4] : c10::IValue();
  stack[place] = int64_t{at::Reduction::None};
  entry.op.callBoxed(&stack);
  const at::Tensor each = stack[0].toTensor();
  const int64_t along = of_classes ? each.dim() : plan_->along[index];
  const at::Tensor counted = without_dropped(group, each, along);
  if (!is_mean) {
    stack = {counted.sum()};
    return;
  }
  const at::Tensor sum = counted.sum(type_of_divided_sum(each.scalar_type()));
  if (of_classes && at::isIntegralType(labels.scalar_type(), false)) {
    const at::Tensor drops = dropped(group, labels, labels.dim());
    const at::Tensor count = labels.ne(ignored.toInt()).logical_and(drops.logical_not()).sum();
    stack = {sum.div(count).to(each.scalar_type())};
    return;
  }
  const int64_t others = each.numel() / std::max<int64_t>(each.size(each.dim() - along), 1);
  stack = {mean(group, sum, others, each.scalar_type())};
}

/// (self, indices, values, accumulate)
void SelectedRows::put(size_t entry, Stack& stack) {
  const at::Tensor self = stack[0].toTensor(), rows = stack[2].toTensor();
  const at::Tensor drops = dropped(plan_->groups[entry], rows, plan_->along[entry]);
  std::vector<int64_t> sizes(self.sizes().begin(), self.sizes().end());
  const auto over = static_cast<size_t>(self.dim() - rows.dim() + 1);
  std::fill(sizes.begin() + static_cast<std::ptrdiff_t>(over), sizes.end(), 1);
  const at::Tensor made = at::where(drops.reshape(sizes), self, rows.reshape(self.sizes()));
  const bool in_place = run_.entries[entry].op.operator_name().name == "aten::index_put_";
  if (in_place) self.copy_(made);
  stack = {in_place ? self : made};
}

void SelectedRows::call(size_t entry, Stack& stack) {
  const int group = plan_->groups[entry];
  switch (plan_->steps[entry]) {
    case RowPlan::Step::plain: break;
    case RowPlan::Step::find: return find(group, stack);
    case RowPlan::Step::hand_on: return hand_on(run_.entries[entry], stack);
    case RowPlan::Step::select: return select(entry, stack);
    case RowPlan::Step::by_row: return run_.entries[entry].op.callBoxed(&stack);
    case RowPlan::Step::reduce: return reduce(entry, stack);
    case RowPlan::Step::loss: return loss(entry, stack);
    case RowPlan::Step::put: return put(entry, stack);
  }
}

}  // namespace bolt::autograd

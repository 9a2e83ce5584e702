// autograd/row_work.cpp
#include "autograd/row_work.h"

#include "autograd/work.h"
#include "support/by_name.h"

namespace bolt::autograd {
namespace {

/// Operators with torch's tag `pointwise` need no row. Views have none: what they do to rows is said where
/// these are followed.
constexpr std::pair<RowWork, std::string_view> kRowWorks[] = {
    {RowWork::by_element,
     "to _to_copy clone contiguous detach alias broadcast_tensors zeros_like ones_like full_like empty_like "
     "fill zero masked_fill hardswish"},
    {RowWork::along_dim,
     "amax amin max min argmax argmin any all prod logsumexp var std linalg_vector_norm norm softmax "
     "log_softmax _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data slice narrow "
     "cumsum "
     "gather scatter scatter_add"},
    {RowWork::sum, "sum mean"},
    {RowWork::loss,
     "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss kl_div binary_cross_entropy "
     "binary_cross_entropy_with_logits"},
    {RowWork::loss_of_classes, "cross_entropy_loss nll_loss_nd"},
};

}  // namespace

RowWork row_work_of(const record::Entry& entry) {
  if (entry.op.hasTag(at::Tag::pointwise)) return RowWork::by_element;
  static const auto rows = by_name(kRowWorks);
  const auto row = rows.find(base_name(entry));
  return row == rows.end() ? RowWork::unknown : row->second;
}

const c10::IValue* value_of(const record::Entry& entry, const char* argument) {
  const auto at = entry.op.schema().argumentIndexWithName(argument);
  return at ? &entry.args[*at].value : nullptr;
}

std::vector<int64_t> dims_of(const record::Entry& entry, size_t rank) {
  const c10::IValue* value = value_of(entry, "dim");
  std::vector<int64_t> dims;
  if (value && value->isInt()) dims.push_back(value->toInt());
  if (value && value->isIntList()) dims = value->toIntVector();
  for (int64_t& d : dims)
    if (d < 0) d += static_cast<int64_t>(rank);
  if (dims.empty())
    for (size_t d = 0; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  return dims;
}

}  // namespace bolt::autograd

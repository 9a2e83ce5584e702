// autograd/work.cpp
#include "autograd/work.h"

#include <string>
#include <string_view>
#include <utility>

#include "record/operator_facts.h"
#include "support/by_name.h"

namespace bolt::autograd {
namespace {

/// Operators with torch's tag `pointwise` have a row only where they are more than Pointwise. Losses of
/// classes read one element a row, of what need not be in memory for that.
constexpr std::pair<Work, std::string_view> kWorks[] = {
    {Work::Pointwise,
     "_to_copy copy clone cat stack constant_pad_nd flip roll repeat zeros ones full zeros_like "
     "ones_like full_like empty_like empty empty_strided new_zeros new_ones new_full new_empty "
     "new_empty_strided arange scalar_tensor eye linspace fill zero masked_fill tril triu "
     "select_scatter slice_scatter reflection_pad1d reflection_pad2d replication_pad1d "
     "replication_pad2d upsample_nearest1d upsample_nearest2d glu isin hardswish nll_loss_backward "
     "nll_loss2d_backward"},
    {Work::Gather, "embedding index_select gather index nll_loss_forward nll_loss2d_forward"},
    {Work::Transcendental,
     "exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh "
     "acosh atanh erf erfc erfinv gelu silu mish elu celu selu sigmoid softplus logaddexp logit xlogy "
     "lgamma digamma log_sigmoid_forward logaddexp2 float_power i0 special_i0e special_i1"},
    {Work::Pass,
     "sum mean amax amin max min var std var_mean std_mean prod any all argmax argmin norm "
     "linalg_vector_norm logsumexp _softmax _log_softmax native_layer_norm native_group_norm "
     "_fused_rms_norm native_batch_norm cumsum avg_pool2d _adaptive_avg_pool2d mean_out "
     "upsample_bilinear2d"},
};

/// A number among the arguments that is taken out of a tensor is read when the entry runs, and the tensor's
/// owner may not know of that.
bool takes_numbers_out(const record::Entry& entry) {
  for (const record::Arg& arg : entry.args)
    if (arg.kind == record::Arg::Kind::Value && !arg.tensors.empty()) return true;
  return false;
}

/// A square, a cube.
bool is_small_power(const record::Entry& entry) {
  constexpr double kMost = 4;
  const c10::IValue& exponent = entry.args[1].value;
  if (entry.args[1].kind != record::Arg::Kind::Value || !exponent.isScalar()) return false;
  const at::Scalar number = exponent.toScalar();
  if (number.isSymbolic() || !(number.isIntegral(false) || number.isFloatingPoint())) return false;
  const double power = number.toDouble();
  return power >= 0 && power <= kMost && power == static_cast<int>(power);
}

}  // namespace

bool is_repeatable(const record::Entry& entry) {
  const record::OperatorFacts& facts = *entry.facts;
  if (facts.communicates || facts.waits) return false;
  if (facts.draws || facts.ends_region || facts.finds_sizes || facts.has_out || facts.turns) return false;
  return !entry.own_version && !takes_numbers_out(entry);
}

std::string_view base_name(const record::Entry& entry) {
  constexpr std::string_view kSpace = "aten::";
  std::string_view name = entry.op.operator_name().name;
  if (!name.starts_with(kSpace)) return {};
  name.remove_prefix(kSpace.size());
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

bool takes_exponentials(const record::Entry& entry) {
  const std::string_view name = base_name(entry);
  return name == "_softmax" || name == "_log_softmax" || name == "logsumexp" ||
         entry.op.operator_name().name == "torchbolt::log_softmax_statistics";
}

bool counts_statistics(const record::Entry& entry) {
  return entry.op.operator_name().name == "aten::native_batch_norm" &&
         !record::written_arguments(entry).empty();
}

Work work_of(const record::Entry& entry) {
  if (!is_repeatable(entry)) return Work::Never;
  const std::string& whole_name = entry.op.operator_name().name;
  if (whole_name == "torchbolt::dropout_keep") return Work::Transcendental;
  if (whole_name == "torchbolt::log_softmax_statistics") return Work::Pass;
  if (whole_name == "torchbolt::log_softmax_with") return Work::Pointwise;
  const std::string_view name = base_name(entry);
  if (name.empty()) return Work::Never;
  if (name == "pow" && is_small_power(entry)) return Work::Pointwise;
  static const auto works = by_name(kWorks);
  if (const auto row = works.find(name); row != works.end()) return row->second;
  return entry.op.hasTag(at::Tag::pointwise) ? Work::Pointwise : Work::Never;
}

/// More than memory is ever worth, so that nobody chooses it.
constexpr double kCall = 1e6;

double price_of(Work work, int64_t bytes_read, int64_t elements_made, const Prices& prices) {
  const auto elements = static_cast<double>(elements_made);
  switch (work) {
    case Work::Pointwise:
    case Work::Gather: return elements * prices.pointwise;
    case Work::Transcendental: return elements * prices.transcendental;
    case Work::Pass:
      return static_cast<double>(bytes_read) * prices.materialised + elements * prices.pointwise;
    case Work::Call: return elements * kCall;
    case Work::Never:
    case Work::View: break;
  }
  return 0;
}

}  // namespace bolt::autograd

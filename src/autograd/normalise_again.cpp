// autograd/normalise_again.cpp
#include "autograd/normalise_again.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>

#include "record/operator_facts.h"

namespace bolt::autograd {
namespace {

using record::Arg;

/// Where the operators of a tape are replayed; kernels have lower/lowerings/normalise.cpp. It rounds as
/// ATen's normalisation on the processor does, in the type that sums are computed in. The statistics are of
/// each channel, or of each group of each image: [1, C] or [N, G].
at::Tensor normalised(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                      const at::Tensor& reciprocal_deviation) {
  const at::ScalarType type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t groups = mean.size(1);
  const auto of_channels = [&](const at::Tensor& t) { return t.to(type).reshape({1, groups, -1}); };
  at::Tensor factor = reciprocal_deviation.to(type).unsqueeze(2);
  if (weight && weight->defined()) factor = factor * of_channels(*weight);
  at::Tensor shift = bias && bias->defined() ? of_channels(*bias) : at::zeros_like(factor);
  shift = at::addcmul(shift, mean.to(type).unsqueeze(2), factor, -1);
  std::vector<int64_t> apart = input.sizes().vec();
  apart[1] = groups;
  apart.insert(apart.begin() + 2, input.size(1) / groups);
  std::vector<int64_t> ones(apart.size() - 3, 1);
  const auto over_pixels = [&](const at::Tensor& t) {
    std::vector<int64_t> sizes = t.sizes().vec();
    sizes.insert(sizes.end(), ones.begin(), ones.end());
    return t.reshape(sizes);
  };
  const at::Tensor y = at::addcmul(over_pixels(shift), input.to(type).reshape(apart), over_pixels(factor));
  return at::empty_like(input, input.suggest_memory_format()).copy_(y.reshape(input.sizes()));
}

at::Tensor normalise_again(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                           const at::Tensor& reciprocal_deviation) {
  return normalised(input, weight, bias, mean.unsqueeze(0), reciprocal_deviation.unsqueeze(0));
}

at::Tensor normalise_groups_again(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                                  const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                                  const at::Tensor& reciprocal_deviation) {
  return normalised(input, weight, bias, mean, reciprocal_deviation);
}

struct Row {
  const char *name, *again;
  int training;  ///< the argument that says that statistics are the batch's; -1: they always are
};
constexpr Row kNormalisations[] = {
    {"aten::native_batch_norm", "torchbolt::normalise_again", 5},
    {"aten::native_group_norm", "torchbolt::normalise_groups_again", -1},
};

const Row* row_of(const record::Entry& entry) {
  const auto row = std::ranges::find(kNormalisations, entry.op.operator_name().name, &Row::name);
  return row == std::end(kNormalisations) ? nullptr : row;
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def(
      "normalise_again(Tensor input, Tensor? weight, Tensor? bias, Tensor save_mean, Tensor save_invstd) -> "
      "Tensor");
  m.impl("normalise_again", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(normalise_again));
  m.def(
      "normalise_groups_again(Tensor input, Tensor? weight, Tensor? bias, Tensor mean, Tensor rstd) -> "
      "Tensor");
  m.impl("normalise_groups_again", c10::DispatchKey::CompositeExplicitAutograd,
         TORCH_FN(normalise_groups_again));
}

}  // namespace

bool gives_statistics(const record::Entry& entry) {
  const Row* row = row_of(entry);
  if (!row || row->training < 0) return row;
  const c10::IValue& training = entry.args[row->training].value;
  return training.isBool() && training.toBool();
}

record::Entry normalised_again(record::Tape& tape, const record::Entry& entry) {
  const Row& row = *row_of(entry);
  const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(row.again, "");
  record::Entry made = entry;
  made.op = op;
  made.facts = &record::facts_of(op);
  made.args = tape.args->take(5);
  made.results = tape.args->take(1);
  std::copy_n(entry.args.begin(), 3, made.args.begin());
  std::copy_n(entry.results.begin() + 1, 2, made.args.begin() + 3);
  made.results[0] = entry.results[0];
  return made;
}

}  // namespace bolt::autograd

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
/// ATen's normalisation on the processor does, in the type that sums are computed in.
at::Tensor normalise_again(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                           const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                           const at::Tensor& reciprocal_deviation) {
  const at::ScalarType type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<int64_t> channels(static_cast<size_t>(input.dim()), 1);
  channels[1] = input.size(1);
  at::Tensor factor = reciprocal_deviation.to(type);
  if (weight && weight->defined()) factor = factor * weight->to(type);
  at::Tensor shift = bias && bias->defined() ? bias->to(type) : at::zeros_like(factor);
  shift = at::addcmul(shift, mean.to(type), factor, -1);
  const at::Tensor y = at::addcmul(shift.reshape(channels), input.to(type), factor.reshape(channels));
  return at::empty_like(input, input.suggest_memory_format()).copy_(y);
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def(
      "normalise_again(Tensor input, Tensor? weight, Tensor? bias, Tensor save_mean, Tensor save_invstd) -> "
      "Tensor");
  m.impl("normalise_again", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(normalise_again));
}

}  // namespace

record::Entry normalised_again(record::Tape& tape, const record::Entry& entry) {
  static const c10::OperatorHandle op =
      c10::Dispatcher::singleton().findSchemaOrThrow("torchbolt::normalise_again", "");
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

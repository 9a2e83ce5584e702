// autograd/sequence_losses.cpp
#include "autograd/sequence_losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/_cudnn_ctc_loss.h>
#include <ATen/ops/_use_cudnn_ctc_loss.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "autograd/node_ptr.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
namespace variables = torch::autograd::impl;

// ---- the operator ----

/// Losses, one of each sequence; their slopes, by (time, sequence, class); and what a mean divides each by.
using Losses = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Scores that nothing leads to are as unlikely as can be: where they are to count as 0, so do their slopes.
at::Tensor without_infinite(const at::Tensor& losses, bool zero_infinity) {
  if (!zero_infinity) return losses;
  return at::where(losses == std::numeric_limits<double>::infinity(), 0.0, losses);
}

/// `input`, `target`: lengths, as a tensor or a list of numbers. The library is asked for where ATen asks.
template <class Lengths>
Losses losses_of(const at::Tensor& scores, const at::Tensor& labels, const Lengths& input,
                 const Lengths& target, int64_t blank, bool zero_infinity) {
  if (scores.is_cuda() && at::_use_cudnn_ctc_loss(scores, labels, input, target, blank)) {
    auto [losses, slopes] = at::_cudnn_ctc_loss(scores, labels, input, target, blank, true, zero_infinity);
    if (zero_infinity) slopes = at::where((losses == 0).unsqueeze(-1), 0.0, slopes);
    return {losses, slopes, {}};
  }
  const at::Tensor there = labels.to(scores.device(), at::kLong);
  const auto [losses, alpha] = at::_ctc_loss(scores, there, input, target, blank, zero_infinity);
  const at::Tensor slopes = at::_ctc_loss_backward(at::ones_like(losses), scores, there, input, target,
                                                   losses, alpha, blank, zero_infinity);
  return {without_infinite(losses, zero_infinity), slopes, {}};
}

at::Tensor divisors(at::IntArrayRef target, const at::Tensor& losses) {
  return at::tensor(target, losses.options()).clamp_min(1);
}

Losses of_lists(const at::Tensor& scores, const at::Tensor& labels, at::IntArrayRef input,
                at::IntArrayRef target, int64_t blank, bool zero_infinity) {
  const at::AutoDispatchBelowADInplaceOrView plainly;
  Losses made = losses_of(scores, labels, input, target, blank, zero_infinity);
  std::get<2>(made) = divisors(target, std::get<0>(made));
  return made;
}

std::vector<int64_t> numbers_in(const at::Tensor& lengths) {
  const at::Tensor here = lengths.to(at::Device(at::kCPU), at::kLong).contiguous();
  const int64_t* first = here.const_data_ptr<int64_t>();
  return {first, first + here.numel()};
}

/// A library takes them as they are; else ATen reads them.
Losses of_tensors(const at::Tensor& scores, const at::Tensor& labels, const at::Tensor& input,
                  const at::Tensor& target, int64_t blank, bool zero_infinity) {
  const at::AutoDispatchBelowADInplaceOrView plainly;
  if (scores.is_cuda() && at::_use_cudnn_ctc_loss(scores, labels, input, target, blank)) {
    Losses made = losses_of(scores, labels, input, target, blank, zero_infinity);
    const at::Tensor& losses = std::get<0>(made);
    std::get<2>(made) = target.to(losses.options()).clamp_min(1);
    return made;
  }
  TORCH_CHECK(at::isIntegralType(input.scalar_type(), false), "input_lengths must be integral");
  TORCH_CHECK(at::isIntegralType(target.scalar_type(), false), "target_lengths must be integral");
  return of_lists(scores, labels, numbers_in(input), numbers_in(target), blank, zero_infinity);
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  // Lengths are read by the host, in each call, so no graph of launches may hold it.
  m.def(
      "ctc_losses(Tensor scores, Tensor labels, Tensor input, Tensor target, int blank, bool zero_infinity) "
      "-> (Tensor, Tensor, Tensor)",
      {at::Tag::cudagraph_unsafe});
  m.def(
      "ctc_losses.lists(Tensor scores, Tensor labels, int[] input, int[] target, int blank, "
      "bool zero_infinity) -> (Tensor, Tensor, Tensor)",
      {at::Tag::cudagraph_unsafe});
  m.impl("ctc_losses", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(of_tensors));
  m.impl("ctc_losses.lists", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(of_lists));
}

// ---- on fakes ----

/// Of the losses; the gradient by the scores is their slopes, times what comes for each sequence.
class SlopeNode final : public Node {
 public:
  std::string name() const override { return "CtcLossBackward"; }
  void release_variables() override { slopes_.reset_data(); }
  void save(const at::Tensor& slopes) { slopes_ = SavedVariable(slopes, false); }

 private:
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return {at::Tensor()};
    // ATen knows no second derivative either, and says so.
    if (at::GradMode::is_enabled()) throw_unsupported("a gradient of ctc_loss that is differentiated");
    return {slopes_.unpack() * gradients[0].unsqueeze(0).unsqueeze(-1)};
  }

  SavedVariable slopes_;
};

}  // namespace

/// (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
bool call_sequence_loss(const record::Entry& entry, torch::jit::Stack& stack,
                        const std::function<void(const c10::OperatorHandle&, torch::jit::Stack&)>& call) {
  static const auto find = [](const char* overload) {
    return c10::Dispatcher::singleton().findSchemaOrThrow("torchbolt::ctc_losses", overload);
  };
  static const c10::OperatorHandle of_tensors_op = find(""), of_lists_op = find("lists");
  if (entry.op.operator_name().name != "aten::ctc_loss" || !entry.grad_mode) return false;
  const at::Tensor given = stack[0].toTensor();
  if (!given.requires_grad()) return false;
  const bool is_batch = given.dim() == 3;
  const at::Tensor scores = is_batch ? given : given.unsqueeze(1);
  const int64_t reduction = stack[5].toInt();

  torch::jit::Stack computed{scores, stack[1], stack[2], stack[3], stack[4], stack[6]};
  call(stack[2].isTensor() ? of_tensors_op : of_lists_op, computed);
  const at::Tensor losses = computed[0].toTensor(), divisors = computed[2].toTensor();
  const auto node = make_node<SlopeNode>();
  node->set_next_edges({variables::gradient_edge(scores)});
  variables::set_gradient_edge(losses, Edge(node, node->add_input_metadata(losses)));
  node->save(computed[1].toTensor());

  if (reduction == at::Reduction::Mean)
    stack = {(losses / divisors).mean()};
  else if (reduction == at::Reduction::Sum)
    stack = {losses.sum()};
  else
    stack = {is_batch ? losses : losses.squeeze(0)};
  return true;
}

}  // namespace bolt::autograd

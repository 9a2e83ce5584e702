// run/second_run.cpp
#include "run/second_run.h"

#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "autograd/node_ptr.h"

namespace bolt::run {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;
namespace variables = torch::autograd::impl;

namespace {

using Ways = std::vector<SecondRun::Way>;

variable_list followed_gradients(const Tensors& of, const Tensors& to, const variable_list& with, Ways ways);

/// Before a result's operator: a pass that captures what comes to the result leaves the rest to the caller's.
class EndsWhereCaptured final : public torch::autograd::FunctionPreHook {
 public:
  explicit EndsWhereCaptured(Node* node) : node_(node) {}

 private:
  variable_list operator()(const variable_list& gradients) override {
    const auto* filter = torch::autograd::get_current_graph_task_exec_info();
    if (!filter) return gradients;
    const auto info = filter->find(node_);
    if (info == filter->end() || !info->second.captures_) return gradients;
    variable_list rest = gradients;
    for (const auto& capture : *info->second.captures_) rest[capture.input_idx_].reset();
    return rest;
  }
  /// What torch's own compiler makes of such a pass needs nothing of it.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& /*args*/) const override {}

  Node* const node_;  // which holds the hook
};

/// The history of gradients that a run has given. Of several such nodes that a pass comes to each may go
/// through the same ones within, which are therefore kept until nobody holds them.
class GradientsNode final : public Node {
 public:
  GradientsNode(Tensors given, Ways ways) : given_(std::move(given)), ways_(std::move(ways)) {
    torch::autograd::edge_list next;
    for (const SecondRun::Way& way : ways_) next.push_back(way.to);
    set_next_edges(std::move(next));
  }

  std::string name() const override { return "TorchboltBackwardBackward"; }
  void release_variables() override {
    const std::lock_guard lock(mutex_);
    given_.clear();
    ways_.clear();
  }

 private:
  variable_list apply(variable_list&& tangents) override {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!given_.empty(), torch::autograd::ERR_BACKWARD_TWICE);
    Tensors of, to;
    variable_list with;
    for (size_t i = 0; i < tangents.size(); ++i)
      if (tangents[i].defined()) of.push_back(given_[i]), with.push_back(std::move(tangents[i]));
    for (const SecondRun::Way& way : ways_) to.push_back(way.from);
    if (of.empty()) return variable_list(to.size());
    return followed_gradients(of, to, with, ways_);
  }

  Tensors given_;
  Ways ways_;
};

/// What of the ways the gradients are made of.
Ways ways_behind(const Tensors& gradients, const Ways& ways) {
  std::unordered_set<const Node*> ends, known;
  for (const SecondRun::Way& way : ways) ends.insert(variables::gradient_edge(way.from).function.get());
  std::vector<const Node*> left;
  for (const at::Tensor& t : gradients) left.push_back(variables::gradient_edge(t).function.get());
  while (!left.empty()) {
    const Node* node = left.back();
    left.pop_back();
    if (!node || !known.insert(node).second || ends.contains(node)) continue;
    for (const Edge& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  Ways behind;
  for (const SecondRun::Way& way : ways)
    if (known.contains(variables::gradient_edge(way.from).function.get())) behind.push_back(way);
  return behind;
}

/// What autograd sees of a tensor: under a vmap of the engine's (is_grads_batched) that is what it wraps.
const at::Tensor& seen_of(const at::Tensor& t) {
  const auto* batched = at::maybeGetBatchedImpl(t);
  return batched ? batched->value() : t;
}

at::Tensor with_seen(const at::Tensor& t, at::Tensor seen) {
  const auto* batched = at::maybeGetBatchedImpl(t);
  const auto dims = batched ? batched->bdims() : at::BatchDimsRef();
  return batched ? at::makeBatched(std::move(seen), at::BatchDims(dims.begin(), dims.end())) : seen;
}

/// Of `of` with respect to `to`, within a run, for tangents of the caller's: gradients of the caller's.
variable_list followed_gradients(const Tensors& of, const Tensors& to, const variable_list& with, Ways ways) {
  if (!c10::GradMode::is_enabled()) return torch::autograd::grad(of, to, with, true, false, true);
  TORCH_CHECK_NOT_IMPLEMENTED(std::ranges::none_of(with, is_of_transform),
                              "torchbolt: third derivatives of a compiled function under torch.func.vmap");
  Tensors within;
  for (const at::Tensor& t : with) {
    const at::Tensor& seen = seen_of(t);
    const at::Tensor leaf = seen.detach();
    within.push_back(with_seen(t, leaf));
    if (!seen.requires_grad()) continue;
    leaf.set_requires_grad(true);
    ways.push_back({leaf, variables::gradient_edge(seen)});
  }
  variable_list found = torch::autograd::grad(of, to, within, true, true, true);
  Tensors given;
  std::vector<size_t> places;
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined() || !seen_of(found[i]).requires_grad()) continue;
    const auto is_itself = [&](const at::Tensor& t) { return seen_of(t).is_same(seen_of(found[i])); };
    const auto itself = std::ranges::find_if(within, is_itself);
    if (itself != within.end()) {
      found[i] = with[itself - within.begin()];
      continue;
    }
    given.push_back(seen_of(found[i]));
    places.push_back(i);
  }
  if (given.empty()) return found;
  const auto node = autograd::make_node<GradientsNode>(given, ways_behind(given, ways));
  for (size_t i : places) {
    at::Tensor tied = seen_of(found[i]).detach();
    torch::autograd::set_history(tied, node);
    found[i] = with_seen(found[i], std::move(tied));
  }
  return found;
}

}  // namespace

bool is_of_transform(const at::Tensor& t) {
  return t.defined() && t.key_set().has_any(c10::DispatchKeySet(
                            {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}));
}

void SecondRun::end_at_results() const {
  std::unordered_set<const Node*> nodes;
  for (const at::Tensor& result : results)
    if (result.defined() && result.requires_grad() && !result.is_leaf())
      if (Node* node = result.grad_fn().get(); nodes.insert(node).second)
        node->add_pre_hook(std::make_unique<EndsWhereCaptured>(node));
}

variable_list SecondRun::differentiate(const Tensors& with_respect_to, const variable_list& tangents,
                                       const Ways& ways) const {
  Tensors to, of, with;
  for (const at::Tensor& t : with_respect_to)
    if (t.defined()) to.push_back(t);
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    const bool as_given = tangents[i].sizes() == results[i].sizes();
    TORCH_CHECK_NOT_IMPLEMENTED(
        as_given || (results[i].is_contiguous() && results[i].numel() == tangents[i].numel()),
        "torchbolt: gradients of gradients of a result that shows a part of what an operator made within");
    of.push_back(results[i]);
    with.push_back(as_given ? tangents[i] : tangents[i].reshape(results[i].sizes()));
  }
  variable_list all(with_respect_to.size());
  if (of.empty() || to.empty()) return all;
  variable_list found = ways.empty() ? torch::autograd::grad(of, to, with, true, true, true)
                                     : followed_gradients(of, to, with, ways);
  auto next = found.begin();
  for (size_t i = 0; i < all.size(); ++i)
    if (with_respect_to[i].defined()) all[i] = std::move(*next++);
  return all;
}

}  // namespace bolt::run

// run/trained/second_run.cpp
#include "run/trained/second_run.h"

#include <ATen/LegacyBatchedTensorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "autograd/node_ptr.h"
#include "guard/transforms.h"

namespace bolt::run {

using torch::autograd::Edge;
using torch::autograd::variable_list;
namespace variables = torch::autograd::impl;

namespace {

using GradNode = torch::autograd::Node;
using Ways = std::vector<SecondRun::Way>;
using There = SecondRun::There;
using FindThere = SecondRun::FindThere;

variable_list followed_gradients(const Tensors& of, const Tensors& to, const variable_list& with, Ways ways,
                                 FindThere there);

/// Before a result's operator: a pass that captures what comes to the result leaves the rest to the caller's.
class EndsWhereCaptured final : public torch::autograd::FunctionPreHook {
 public:
  explicit EndsWhereCaptured(GradNode* node) : node_(node) {}

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

  GradNode* const node_;  // which holds the hook
};

/// The history of gradients that a run has given. Of several such nodes that a pass comes to each may go
/// through the same ones within, which are therefore kept until nobody holds them.
class GradientsNode final : public GradNode {
 public:
  /// `there`: they for no tangents, and the ways.
  GradientsNode(Tensors given, Ways ways, FindThere there)
      : given_(std::move(given)), ways_(std::move(ways)), there_(std::move(there)) {
    torch::autograd::edge_list next;
    for (const SecondRun::Way& way : ways_) next.push_back(way.to);
    set_next_edges(std::move(next));
  }

  std::string name() const override { return "TorchboltBackwardBackward"; }
  void release_variables() override {
    const std::lock_guard lock(mutex_);
    given_.clear();
    ways_.clear();
    there_ = nullptr;
  }

 private:
  variable_list apply(variable_list&& tangents) override {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!given_.empty(), torch::autograd::ERR_BACKWARD_TWICE);
    Tensors of, to;
    variable_list with;
    std::vector<size_t> places;
    for (size_t i = 0; i < tangents.size(); ++i)
      if (tangents[i].defined())
        of.push_back(given_[i]), with.push_back(std::move(tangents[i])), places.push_back(i);
    for (const SecondRun::Way& way : ways_) to.push_back(way.from);
    if (of.empty()) return variable_list(to.size());
    const auto there = [again = there_, places](const variable_list& tangents) {
      There made = again({});
      return There{gradients_there(made, places, tangents), std::move(made.from)};
    };
    if (c10::GradMode::is_enabled() && begins_there(with)) return there(with).gradients;
    return followed_gradients(of, to, with, ways_, there);
  }

  /// Of some of the gradients that were made there, by way.
  static variable_list gradients_there(const There& made, const std::vector<size_t>& places,
                                       const variable_list& tangents) {
    Tensors of, to;
    variable_list with;
    std::vector<size_t> by_way;
    for (size_t i = 0; i < places.size(); ++i)
      if (const at::Tensor& t = made.gradients[places[i]]; t.defined() && t.requires_grad())
        of.push_back(t), with.push_back(tangents[i]);
    for (size_t i = 0; i < made.from.size(); ++i)
      if (made.from[i].defined() && made.from[i].requires_grad())
        to.push_back(made.from[i]), by_way.push_back(i);
    variable_list all(made.from.size());
    if (of.empty() || to.empty()) return all;
    variable_list found = torch::autograd::grad(of, to, with, true, true, true);
    for (size_t i = 0; i < by_way.size(); ++i) all[by_way[i]] = std::move(found[i]);
    return all;
  }

  Tensors given_;
  Ways ways_;
  FindThere there_;
};

/// The ways that the gradients are made of.
std::vector<size_t> ways_behind(const Tensors& gradients, const Ways& ways) {
  std::unordered_set<const GradNode*> ends, known;
  const auto end_of = [](const SecondRun::Way& way) {
    return way.from.defined() ? variables::gradient_edge(way.from).function.get() : nullptr;
  };
  for (const SecondRun::Way& way : ways) ends.insert(end_of(way));
  std::vector<const GradNode*> left;
  for (const at::Tensor& t : gradients) left.push_back(variables::gradient_edge(t).function.get());
  while (!left.empty()) {
    const GradNode* node = left.back();
    left.pop_back();
    if (!node || !known.insert(node).second || ends.contains(node)) continue;
    for (const Edge& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  std::vector<size_t> behind;
  for (size_t i = 0; i < ways.size(); ++i)
    if (known.contains(end_of(ways[i]))) behind.push_back(i);
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

/// Some of the gradients and ways that are found there. `tangents`: of those that are followed each begins a
/// way of its own, behind the others.
There chosen_there(const FindThere& there, variable_list tangents, const std::vector<size_t>& gradients,
                   const std::vector<size_t>& ways) {
  const auto apart = apart_from_transforms();
  const at::AutoGradMode followed(true);
  Tensors own;
  for (at::Tensor& t : tangents) {
    if (!seen_of(t).requires_grad()) continue;
    own.push_back(at::alias(seen_of(t)));
    t = with_seen(t, own.back());
  }
  There all = there(tangents), chosen;
  all.from.insert(all.from.end(), own.begin(), own.end());
  for (size_t i : gradients) chosen.gradients.push_back(seen_of(all.gradients[i]));
  for (size_t i : ways) chosen.from.push_back(all.from[i]);
  return chosen;
}

/// Of `of` with respect to `to`, within a run, for tangents of the caller's: gradients of the caller's.
variable_list followed_gradients(const Tensors& of, const Tensors& to, const variable_list& with, Ways ways,
                                 FindThere there) {
  if (!c10::GradMode::is_enabled()) return torch::autograd::grad(of, to, with, true, false, true);
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
  const std::vector<size_t> behind = ways_behind(given, ways);
  Ways led_to;
  for (size_t i : behind) led_to.push_back(ways[i]);
  const auto again = [there = std::move(there), with, places, behind](const variable_list&) {
    return chosen_there(there, with, places, behind);
  };
  const auto node = autograd::make_node<GradientsNode>(given, std::move(led_to), again);
  for (size_t i : places) {
    at::Tensor tied = seen_of(found[i]).detach();
    torch::autograd::set_history(tied, node);
    found[i] = with_seen(found[i], std::move(tied));
  }
  return found;
}

}  // namespace

bool begins_there(const variable_list& tangents) {
  constexpr c10::DispatchKeySet kOfTransforms(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return guard::transform_levels() > 0 || std::ranges::any_of(tangents, [&](const at::Tensor& t) {
           return t.defined() && t.key_set().has_any(kOfTransforms);
         });
}

c10::impl::ExcludeDispatchKeyGuard apart_from_transforms() {
  return c10::impl::ExcludeDispatchKeyGuard(c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode}));
}

Tensors SecondRun::begins() const {
  Tensors all = from;
  all.insert(all.end(), results.begin(), results.end());
  all.insert(all.end(), inner.begin(), inner.end());
  return all;
}

void SecondRun::end_at_results() const {
  std::unordered_set<const GradNode*> nodes;
  for (const at::Tensor& result : results)
    if (result.defined() && result.requires_grad() && !result.is_leaf())
      if (GradNode* node = result.grad_fn().get(); nodes.insert(node).second)
        node->add_pre_hook(std::make_unique<EndsWhereCaptured>(node));
}

variable_list SecondRun::differentiate(const Tensors& with_respect_to, const variable_list& tangents,
                                       const Ways& ways, const FindThere& there) const {
  Tensors to, of, with;
  std::vector<size_t> asked, given;
  for (size_t i = 0; i < with_respect_to.size(); ++i)
    if (with_respect_to[i].defined()) to.push_back(with_respect_to[i]), asked.push_back(i);
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined()) continue;
    const bool as_given = tangents[i].sizes() == results[i].sizes();
    TORCH_CHECK_NOT_IMPLEMENTED(
        as_given || (results[i].is_contiguous() && results[i].numel() == tangents[i].numel()),
        "torchbolt: gradients of gradients of a result that shows a part of what an operator made within");
    of.push_back(results[i]);
    with.push_back(as_given ? tangents[i] : tangents[i].reshape(results[i].sizes()));
    given.push_back(i);
  }
  variable_list all(with_respect_to.size());
  if (of.empty() || to.empty()) return all;
  const auto of_these = [there, asked, given, count = tangents.size()](const variable_list& these) {
    variable_list tangents(count);
    for (size_t i = 0; i < given.size(); ++i) tangents[given[i]] = these[i];
    There made = there(tangents);
    variable_list chosen;
    for (size_t i : asked) chosen.push_back(std::move(made.gradients[i]));
    return There{std::move(chosen), std::move(made.from)};
  };
  variable_list found = there ? followed_gradients(of, to, with, ways, of_these)
                              : torch::autograd::grad(of, to, with, true, true, true);
  for (size_t i = 0; i < asked.size(); ++i) all[asked[i]] = std::move(found[i]);
  return all;
}

}  // namespace bolt::run

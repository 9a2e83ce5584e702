// record/backward.cpp
#include "record/backward.h"

#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <optional>
#include <typeinfo>
#include <unordered_set>

#include "device/host/host.h"
#include "guard/transforms.h"
#include "record/left_to_eager.h"
#include "record/tensors.h"

namespace bolt::record {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;
namespace variables = torch::autograd::impl;

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
         !node.retains_grad_hooks().empty() || node.tensor_post_acc_grad_hooks();
}

/// An autograd.Function's. Torch does not export the class.
bool is_pythons(const Node& node) { return c10::demangle(typeid(node).name()) == "torch::autograd::PyNode"; }

/// Is there code for steps on tensors that lie there?
bool lies_right(const at::Tensor& t) { return is_plain(t) && (device::is_on_host(t) || t.is_cuda()); }

/// Would the engine call it on the stream that is current here? Those of leaves only add up what has come.
bool is_on_current_stream(Node& node) {
  const std::optional<c10::Stream> stream = node.stream();
  if (!stream) return true;
  return c10::impl::VirtualGuardImpl(stream->device_type()).getStream(stream->device()) == *stream;
}

/// Is the thread as a backward pass finds it that nobody looks at?
bool is_looked_at() {
  const bool saves_seen =
      at::SavedTensorDefaultHooks::is_enabled() && at::SavedTensorDefaultHooks::get_hooks();
  return saves_seen || torch::autograd::AnomalyMode::is_enabled() || guard::transform_levels() > 0 ||
         torch::autograd::get_current_graph_task_id() != -1;
}

class Search {
 public:
  explicit Search(uint64_t first_number) : first_number_(first_number) {}

  bool find(const std::vector<at::Tensor>& outputs) {
    for (const at::Tensor& t : outputs) {
      if (!t.defined() || !t.requires_grad() || t.is_leaf() || !lies_right(t)) return false;
      come_to(variables::gradient_edge(t).function.get());
    }
    for (size_t i = 0; i < found_.size(); ++i) {
      Node& node = *found_[i];
      if (has_hooks(node) || !takes(node)) return false;
      for (const torch::autograd::Edge& edge : node.next_edges())
        if (edge.is_valid()) come_to(edge.function.get());
    }
    return true;
  }

  bool came_to(const at::Tensor& t) const {
    return seen_.contains(variables::gradient_edge(t).function.get());
  }
  std::vector<at::Tensor> leaves;

 private:
  void come_to(Node* node) {
    if (seen_.insert(node).second) found_.push_back(node);
  }

  bool takes(Node& node) {
    if (auto* leaf = dynamic_cast<AccumulateGrad*>(&node)) {
      const at::Tensor& t = leaf->variable;
      if (!lies_right(t) || record::has_hooks(t)) return false;
      leaves.push_back(t);
      return true;
    }
    return node.sequence_nr() >= first_number_ && !is_pythons(node) && is_on_current_stream(node);
  }

  const uint64_t first_number_;
  std::vector<Node*> found_;
  std::unordered_set<Node*> seen_;
};

}  // namespace

bool is_better_apart(const Tape& tape) {
  auto differs = [](const Arg& arg) {  // an operand is handed on as a tensor is, and so is what is in one
    return !arg.syms.empty() && arg.kind != Arg::Kind::WrappedNumber;
  };
  for (size_t i : left_to_eager(tape, false))
    if (is_followed(tape, tape.entries[i])) return true;
  return std::ranges::any_of(tape.entries, [&](const Entry& e) {
    return (std::ranges::any_of(e.args, differs) && is_followed(tape, e)) ||
           e.op.operator_name().name == "torchbolt::begin_checkpoint";
  });
}

bool has_hooks(const at::Tensor& leaf) {
  if (!variables::hooks(leaf).empty() || variables::post_acc_grad_hooks(leaf)) return true;
  const auto accumulator = variables::try_get_grad_accumulator(leaf);
  return accumulator && has_hooks(*accumulator);
}

std::optional<std::vector<at::Tensor>> places_behind(const std::vector<at::Tensor>& outputs,
                                                     const std::vector<at::Tensor>& asked,
                                                     const std::vector<at::Tensor>& inputs,
                                                     uint64_t first_number) {
  Search search(first_number);
  if (outputs.empty() || is_looked_at() || !search.find(outputs)) return std::nullopt;
  // A history from before the region goes on behind them.
  const bool goes_on = std::ranges::any_of(
      inputs, [&](const at::Tensor& t) { return t.requires_grad() && !t.is_leaf() && search.came_to(t); });
  if (goes_on) return std::nullopt;
  if (asked.empty()) return std::move(search.leaves);
  const bool all = std::ranges::all_of(
      asked, [&](const at::Tensor& t) { return t.requires_grad() && lies_right(t) && search.came_to(t); });
  return all ? std::optional(asked) : std::nullopt;
}

}  // namespace bolt::record

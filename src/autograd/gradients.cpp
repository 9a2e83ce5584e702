// autograd/gradients.cpp
#include "autograd/gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/detach.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/grad_layout_contract.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/fake.h"
#include "autograd/walk.h"
#include "python/gil.h"
#include "record/backward.h"
#include "record/tensors.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
namespace contract = torch::autograd::utils;
namespace variables = torch::autograd::impl;
using Tensors = std::vector<at::Tensor>;

constexpr size_t kPlaces = 2;  // of the arguments

thread_local Passes* listening = nullptr;

torch::autograd::edge_list edges_of(at::TensorList tensors) {
  torch::autograd::edge_list edges;
  for (const at::Tensor& t : tensors) edges.push_back(variables::gradient_edge(t));
  return edges;
}

void check_hooks(at::TensorList places) {
  for (const at::Tensor& leaf : places)  // the call is given to eager then
    TORCH_CHECK(!record::has_hooks(leaf), "torchbolt: a parameter has got a hook for its gradient");
}

bool only_stand_for_others(at::TensorList outputs) { return !outputs.empty() && as_fake(outputs[0]); }

/// What a pass leaves of the graph that it goes through.
enum class Leaves : uint8_t {
  nothing,
  graph,
  history,  ///< the graph, and the pass's own: its gradients can be differentiated
};

Tensors by_engine(at::TensorList outputs, at::TensorList tangents, at::TensorList places, Leaves leaves) {
  check_hooks(places);
  std::optional<WithoutGil> released;
  if (PyGILState_Check()) released.emplace();
  return torch::autograd::Engine::get_default_engine().execute(
      edges_of(outputs), tangents.vec(), leaves != Leaves::nothing, leaves == Leaves::history, false,
      edges_of(places));
}

Tensors by_walk(at::TensorList outputs, at::TensorList tangents, at::TensorList places, Leaves leaves) {
  std::vector<Root> roots;
  for (size_t i = 0; i < outputs.size(); ++i)
    roots.push_back({variables::gradient_edge(outputs[i]), tangents[i]});
  return gradients_at(edges_of(places), roots, leaves == Leaves::history, [&](const Node& node) {
    if (listening) listening->called(node, leaves != Leaves::nothing);
  });
}

/// Each lies as its leaf does, in memory that nothing else that is known here lies in.
void make_own(at::TensorList outputs, at::TensorList tangents, at::TensorList leaves, Tensors& found) {
  const at::NoGradGuard no_grad;
  std::unordered_set<const c10::StorageImpl*> seen;
  for (const at::TensorList list : {outputs, tangents, leaves})
    for (const at::Tensor& t : list) seen.insert(t.storage().unsafeGetStorageImpl());
  for (size_t i = 0; i < found.size(); ++i) {
    at::Tensor& t = found[i];
    if (!t.defined() || !t.has_storage() || t.layout() != at::kStrided) continue;
    const bool lies_so = contract::obeys_layout_contract(t, leaves[i]);
    if (!lies_so || seen.contains(t.storage().unsafeGetStorageImpl()))
      t = contract::clone_obey_contract(t, leaves[i]);
    seen.insert(t.storage().unsafeGetStorageImpl());
  }
}

Tensors gradients(at::TensorList outputs, at::TensorList tangents, at::TensorList places, bool retain,
                  bool own) {
  const bool walks = only_stand_for_others(outputs);
  if (walks && !listening) throw_unsupported("a backward pass among what gradients are wanted of");
  const Leaves leaves = retain ? Leaves::graph : Leaves::nothing;
  Tensors found = (walks ? by_walk : by_engine)(outputs, tangents, places, leaves);
  if (own) make_own(outputs, tangents, places, found);
  return found;
}

/// In the middle of another pass (the tape is replayed for gradients of gradients), nodes ask that pass which
/// of their gradients are wanted, unless the engine begins one within it.
Tensors followed_gradients(at::TensorList outputs, at::TensorList tangents, at::TensorList places) {
  const bool is_within_a_pass = torch::autograd::get_current_graph_task_id() != -1;
  if (!only_stand_for_others(outputs)) {
    if (is_within_a_pass) return by_engine(outputs, tangents, places, Leaves::history);
    check_hooks(places);
  }
  return by_walk(outputs, tangents, places, Leaves::history);
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def("gradients(Tensor[] outputs, Tensor[] tangents, Tensor[] places, bool retain, bool own) -> Tensor[]");
  m.impl("gradients", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(gradients));
  m.impl("gradients", c10::DispatchKey::Autograd, TORCH_FN(gradients));
  m.def("followed_gradients(Tensor[] outputs, Tensor[] tangents, Tensor[] places) -> Tensor[]");
  m.impl("followed_gradients", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(followed_gradients));
  m.impl("followed_gradients", c10::DispatchKey::Autograd, TORCH_FN(followed_gradients));
}

}  // namespace

bool is_gradients(const record::Entry& entry) {
  return entry.op.operator_name().name == "torchbolt::gradients";
}

bool has_gradients(const record::Tape& tape) { return std::ranges::any_of(tape.entries, is_gradients); }

bool is_followed_pass(const record::Entry& entry) {
  return entry.op.operator_name().name == "torchbolt::followed_gradients";
}

bool has_passes(const record::Tape& tape) {
  return has_gradients(tape) || std::ranges::any_of(tape.entries, is_followed_pass);
}

const record::TensorIds& places_of(const record::Entry& entry) { return entry.args[kPlaces].tensors; }

Passes::Passes(std::function<void(const Node&)> before)
    : outer_(std::exchange(listening, this)), before_(std::move(before)) {}
Passes::~Passes() { listening = outer_; }

void Passes::called(const Node& node, bool retained) {
  before_(node);
  if (!retained) gone_.emplace(&node, const_cast<Node&>(node).getptr());
}

bool Passes::used_up(const at::Tensor& t, const std::vector<at::Tensor>& results) const {
  auto made_by = [](const at::Tensor& result) { return variables::gradient_edge(result).function.get(); };
  std::vector<Node*> behind = {made_by(t)};
  std::unordered_set<Node*> seen;
  while (!behind.empty()) {
    Node* node = behind.back();
    behind.pop_back();
    if (!seen.insert(node).second) continue;
    if (dynamic_cast<InputNode*>(node)) return false;
    if (gone_.contains(node)) continue;
    const size_t before = behind.size();
    for (const Edge& edge : node->next_edges())
      if (edge.is_valid()) behind.push_back(edge.function.get());
    if (behind.size() == before) return false;  // a leaf
  }
  seen.erase(made_by(t));
  return std::ranges::none_of(results, [&](const at::Tensor& result) {
    return result.defined() && result.requires_grad() && seen.contains(made_by(result));
  });
}

}  // namespace bolt::autograd

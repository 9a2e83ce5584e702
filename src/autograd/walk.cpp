// autograd/walk.cpp
#include "autograd/walk.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/error.h"

namespace bolt::autograd {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

variable_list InputNode::apply(variable_list&& gradients) {
  gradient = std::move(gradients.at(0));
  return {};
}

namespace {

class NodeWalk {
 public:
  /// `places`: null, for a walk to the ends of all ways.
  NodeWalk(const std::vector<Root>& roots, const Unseen& unseen, const Summed& summed,
           const std::vector<Edge>* places = nullptr)
      : roots_(roots), unseen_(unseen), summed_(summed), places_(places) {
    for (const Root& root : roots) find(root.edge.function.get());
    find_all();
    if (places) find_ways();
    count_users();
    for (size_t i = 0; i < roots.size(); ++i)
      if (roots[i].is_inner)
        inner_of(roots[i], i);
      else
        give(roots[i].edge, roots[i].gradient, itself(i));
    for (auto& [node, state] : states_)
      if (state.users == 0) ready_.push(node);
  }

  void run(const std::function<void(const Node&)>& before) {
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      note_what_came(node);
      if (!states_[node].leads) continue;
      before(*node);
      for (size_t root : states_[node].inner) sum(root);
      const std::vector<bool> from = states_[node].roots;
      variable_list gradients = call(*node);
      for (size_t i = 0; i < node->num_outputs(); ++i) {
        const Edge& edge = node->next_edge(i);
        if (!edge.is_valid()) continue;
        if (i < gradients.size()) give(edge, gradients[i], from);
        if (--states_[edge.function.get()].users == 0) ready_.push(edge.function.get());
      }
    }
  }

  /// By place.
  variable_list came;

 private:
  struct State {
    int users = 0;              ///< that have not run, one for each edge
    variable_list inputs;       ///< sums of what has come so far
    std::vector<bool> roots;    ///< that it came from
    std::vector<size_t> inner;  ///< roots that lead here and are inner ones
    bool leads = true;          ///< to a place, or there are none
  };
  struct MadeBefore {
    bool operator()(const Node* a, const Node* b) const { return a->sequence_nr() < b->sequence_nr(); }
  };

  void find(Node* node) {
    if (states_.try_emplace(node).second) found_.push_back(node);
  }

  std::vector<bool> itself(size_t root) const {
    std::vector<bool> bits(roots_.size(), false);
    bits[root] = true;
    return bits;
  }

  /// Its gradient is added when all has come that comes from others.
  void inner_of(const Root& root, size_t i) {
    for (size_t other = 0; other < roots_.size(); ++other)
      if (other != i && roots_[other].edge == root.edge)
        throw_unsupported("results that have one place in autograd's graph, of which others are made");
    states_[root.edge.function.get()].inner.push_back(i);
  }

  void sum(size_t i) {
    const Root& root = roots_[i];
    State& state = states_[root.edge.function.get()];
    state.inputs.resize(std::max<size_t>(state.inputs.size(), root.edge.function->num_inputs()));
    const at::Tensor through = state.inputs.at(root.edge.input_nr);
    std::vector<bool> from = state.roots;
    from.resize(roots_.size());
    give(root.edge, root.gradient, itself(i), true);
    summed_(i, through, state.inputs.at(root.edge.input_nr), from);
  }

  void find_all() {
    for (size_t i = 0; i < found_.size(); ++i)
      for (const Edge& edge : found_[i]->next_edges())
        if (edge.is_valid()) find(edge.function.get());
  }

  void find_ways() {
    std::unordered_map<Node*, std::vector<Node*>> users;
    for (Node* node : found_) {
      states_[node].leads = false;
      for (const Edge& edge : node->next_edges())
        if (edge.is_valid()) users[edge.function.get()].push_back(node);
    }
    std::vector<Node*> behind;
    for (const Edge& place : *places_) behind.push_back(place.function.get());
    while (!behind.empty()) {
      Node* node = behind.back();
      behind.pop_back();
      for (Node* user : users[node])
        if (!std::exchange(states_[user].leads, true)) behind.push_back(user);
    }
  }

  void count_users() {
    for (Node* node : found_)
      if (states_[node].leads)
        for (const Edge& edge : node->next_edges())
          if (edge.is_valid()) ++states_[edge.function.get()].users;
  }

  void note_what_came(Node* node) {
    if (!places_) return;
    came.resize(places_->size());
    for (size_t i = 0; i < places_->size(); ++i)
      if (const Edge& place = (*places_)[i]; place.function.get() == node)
        if (variable_list& inputs = states_[node].inputs; place.input_nr < inputs.size())
          came[i] = inputs[place.input_nr];
  }

  /// `first`: it came before what is there.
  void give(const Edge& edge, const at::Tensor& gradient, const std::vector<bool>& from, bool first = false) {
    State& state = states_[edge.function.get()];
    variable_list& inputs = state.inputs;
    inputs.resize(std::max<size_t>(inputs.size(), edge.function->num_inputs()));
    at::Tensor& sum = inputs.at(edge.input_nr);
    if (!gradient.defined()) return;
    sum = !sum.defined() ? gradient : first ? at::add(gradient, sum) : at::add(sum, gradient);
    state.roots.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) state.roots[i] = state.roots[i] || from[i];
  }

  variable_list call(Node& node) {
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node)) {
      if (unseen_ && unseen_(leaf->variable)) return {};
      throw_unsupported("a tensor that was made to require a gradient inside");
    }
    if (auto* input = dynamic_cast<InputNode*>(&node)) input->roots = states_[&node].roots;
    variable_list inputs = std::move(states_[&node].inputs);
    inputs.resize(node.num_inputs());
    variable_list gradients = node(std::move(inputs));
    if (gradients.empty()) return gradients;
    auto in_words = [&](const std::string& what) { return node.name() + ": " + what; };
    torch::autograd::validate_outputs(node.next_edges(), gradients, in_words);
    return gradients;
  }

  const std::vector<Root>& roots_;
  const Unseen& unseen_;
  const Summed& summed_;
  const std::vector<Edge>* places_;
  std::unordered_map<Node*, State> states_;
  std::vector<Node*> found_;
  std::priority_queue<Node*, std::vector<Node*>, MadeBefore> ready_;
};

}  // namespace

void walk(const std::vector<Root>& roots, const std::function<void(const Node&)>& before,
          const Unseen& unseen, const Summed& summed) {
  const at::AutoGradMode no_gradients(false);
  NodeWalk(roots, unseen, summed).run(before);
}

variable_list gradients_at(const std::vector<Edge>& places, const std::vector<Root>& roots, bool with_history,
                           const std::function<void(const Node&)>& before) {
  const at::AutoGradMode mode(with_history);
  NodeWalk walk(roots, nullptr, nullptr, &places);
  walk.run(before);
  walk.came.resize(places.size());
  return std::move(walk.came);
}

}  // namespace bolt::autograd

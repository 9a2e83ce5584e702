// autograd/walk.cpp
#include "autograd/walk.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <queue>
#include <unordered_map>

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
  NodeWalk(const std::vector<Root>& roots, const Unseen& unseen, const Summed& summed)
      : roots_(roots), unseen_(unseen), summed_(summed) {
    for (const Root& root : roots) find(root.edge.function.get());
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

 private:
  struct State {
    int users = 0;              ///< that have not run, one for each edge
    variable_list inputs;       ///< sums of what has come so far
    std::vector<bool> roots;    ///< that it came from
    std::vector<size_t> inner;  ///< roots that lead here and are inner ones
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

  void count_users() {
    for (size_t i = 0; i < found_.size(); ++i)
      for (const Edge& edge : found_[i]->next_edges()) {
        if (!edge.is_valid()) continue;
        find(edge.function.get());
        ++states_[edge.function.get()].users;
      }
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

}  // namespace bolt::autograd

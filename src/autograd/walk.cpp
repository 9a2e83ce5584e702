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
  NodeWalk(const std::vector<Root>& roots, const Unseen& unseen) : unseen_(unseen) {
    for (const Root& root : roots) find(root.edge.function.get());
    count_users();
    for (size_t i = 0; i < roots.size(); ++i) {
      std::vector<bool> itself(roots.size(), false);
      itself[i] = true;
      give(roots[i].edge, roots[i].gradient, itself);
    }
    for (auto& [node, state] : states_)
      if (state.users == 0) ready_.push(node);
  }

  void run(const std::function<void(const Node&)>& before) {
    while (!ready_.empty()) {
      Node* node = ready_.top();
      ready_.pop();
      before(*node);
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
    int users = 0;            ///< that have not run, one for each edge
    variable_list inputs;     ///< sums of what has come so far
    std::vector<bool> roots;  ///< that it came from
  };
  struct MadeBefore {
    bool operator()(const Node* a, const Node* b) const { return a->sequence_nr() < b->sequence_nr(); }
  };

  void find(Node* node) {
    if (states_.try_emplace(node).second) found_.push_back(node);
  }

  void count_users() {
    for (size_t i = 0; i < found_.size(); ++i)
      for (const Edge& edge : found_[i]->next_edges()) {
        if (!edge.is_valid()) continue;
        find(edge.function.get());
        ++states_[edge.function.get()].users;
      }
  }

  void give(const Edge& edge, const at::Tensor& gradient, const std::vector<bool>& from) {
    State& state = states_[edge.function.get()];
    variable_list& inputs = state.inputs;
    inputs.resize(std::max<size_t>(inputs.size(), edge.function->num_inputs()));
    at::Tensor& sum = inputs.at(edge.input_nr);
    if (!gradient.defined()) return;
    sum = sum.defined() ? at::add(sum, gradient) : gradient;
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

  const Unseen& unseen_;
  std::unordered_map<Node*, State> states_;
  std::vector<Node*> found_;
  std::priority_queue<Node*, std::vector<Node*>, MadeBefore> ready_;
};

}  // namespace

void walk(const std::vector<Root>& roots, const std::function<void(const Node&)>& before,
          const Unseen& unseen) {
  const at::AutoGradMode no_gradients(false);
  NodeWalk(roots, unseen).run(before);
}

}  // namespace bolt::autograd

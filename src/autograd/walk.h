// autograd/walk.h
// Gradients of outputs -> gradients of inputs, by calling autograd's nodes ourselves.
//
// The nodes are called in the calling thread and in the order in which autograd's engine calls them: one runs
// when all its users have run, and of those that can, the one that was made last. So gradients are summed in
// eager's order, and neither an engine, nor its device threads, nor its hooks are involved. So are the nodes
// that a pass makes whose gradients have a history: they are numbered in this thread, whatever the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "autograd/node_ptr.h"

namespace bolt::autograd {

/// Where the gradient of an input arrives. Nothing is behind it.
class InputNode final : public torch::autograd::Node {
 public:
  at::Tensor gradient;  ///< undefined: none has come, or a walk to places
  /// By root: it leads here. What no root with a gradient leads to has none, which is not the same as zeros.
  std::vector<bool> roots;

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
};

struct Root {
  torch::autograd::Edge edge;
  at::Tensor gradient;
  bool is_inner = false;  ///< other roots lead there, too, and what comes from those is to be told apart
};

/// Of an inner root: what has come to it from others (undefined: nothing), and what it is with the root's own
/// gradient. `from`: the roots that it came from.
using Summed = std::function<void(size_t root, const at::Tensor& through, const at::Tensor& whole,
                                  const std::vector<bool>& from)>;

/// Of a leaf: does nobody ever see its gradient?
using Unseen = std::function<bool(const at::Tensor&)>;

/// `before` is told of each node that is about to be called, `summed` of each inner root. Throws
/// Unsupported for nodes that run Python's code, and for leaves but those that are `unseen`, whose
/// gradients end there.
void walk(const std::vector<Root>& roots, const std::function<void(const torch::autograd::Node&)>& before,
          const Unseen& unseen = nullptr, const Summed& summed = nullptr);

/// What comes to these places from the roots, as torch.autograd.grad gives it; undefined: nothing. Only nodes
/// on a way there are called. `with_history`: what is computed can be differentiated (create_graph).
std::vector<at::Tensor> gradients_at(const std::vector<torch::autograd::Edge>& places,
                                     const std::vector<Root>& roots, bool with_history,
                                     const std::function<void(const torch::autograd::Node&)>& before);

}  // namespace bolt::autograd

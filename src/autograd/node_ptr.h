// autograd/node_ptr.h
// How autograd's nodes are held: by std::shared_ptr up to torch 2.11, by c10::intrusive_ptr from 2.13 on.
// Nothing else of ours needs to know which.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <utility>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13)
#define BOLT_INTRUSIVE_NODES 1
#else
#define BOLT_INTRUSIVE_NODES 0
#endif

namespace bolt::autograd {

using NodePtr = decltype(torch::autograd::Edge::function);

/// A node of ours, let go of as torch lets go of its own: a long chain of nodes, each of which holds the
/// next, must not be taken apart by recursion.
template <class T, class... Args>
auto make_node(Args&&... args) {
#if BOLT_INTRUSIVE_NODES
  return c10::make_intrusive<T>(std::forward<Args>(args)...);
#else
  return std::shared_ptr<T>(new T(std::forward<Args>(args)...), torch::autograd::deleteNode);
#endif
}

}  // namespace bolt::autograd

// autograd/gradients.h
// A backward pass as an operator: what torch.autograd.grad computes, without a word about `.grad`.
//
//   torchbolt::gradients(Tensor[] outputs, Tensor[] tangents, Tensor[] places, bool retain, bool own)
//     -> Tensor[]
//   torchbolt::followed_gradients(Tensor[] outputs, Tensor[] tangents, Tensor[] places) -> Tensor[]
//
// torchbolt.stand_ins calls it in place of the engine and accumulates what it gives, so that a recording goes
// on behind the backward pass (record/backward.h says when that may be). On real tensors autograd's engine
// runs. On tensors that only stand for others their nodes are walked (walk.h), and what they call is written
// to the tape that is being made (step.h).
//
// `own`: what it gives is put into `.grad`, so each is memory of its own that lies as its leaf does, as
// AccumulateGrad would have it.
//
// The second one's results have a history (create_graph): a penalty on gradients, forces out of an energy,
// the residual of a differential equation. To whoever differentiates it is an operator like another that
// falls apart, into what ATen's nodes call, with autograd above it. Real tensors are walked as well, in this
// thread: the engine has others for devices, whose nodes are numbered by themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <unordered_map>
#include <vector>

#include "autograd/node_ptr.h"
#include "record/tape.h"

namespace bolt::autograd {

bool is_gradients(const record::Entry& entry);
bool has_gradients(const record::Tape& tape);
bool is_followed_pass(const record::Entry& entry);
/// Is any of either kind on it?
bool has_passes(const record::Tape& tape);
/// Tensors of the tape that the entry, which is one of these, gives gradients of.
const record::TensorIds& places_of(const record::Entry& entry);

/// While one lives, backward passes over tensors that stand for others run in this thread; without it they
/// are an error.
class Passes {
 public:
  /// `before` is told of each node that is about to be called.
  explicit Passes(std::function<void(const torch::autograd::Node&)> before);
  ~Passes();
  Passes(const Passes&) = delete;

  void called(const torch::autograd::Node& node, bool retained);
  /// Does each way behind `t` come to a node that is used up, as the engine leaves it that does not retain
  /// the graph, and to none of the other results before?
  bool used_up(const at::Tensor& t, const std::vector<at::Tensor>& results) const;

 private:
  Passes* const outer_;
  const std::function<void(const torch::autograd::Node&)> before_;
  /// Held: an address must not come again.
  std::unordered_map<const torch::autograd::Node*, NodePtr> gone_;
};

}  // namespace bolt::autograd

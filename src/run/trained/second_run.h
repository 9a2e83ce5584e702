// run/trained/second_run.h
// A run as eager makes it, where autograd sees it -> gradients that can be differentiated in turn.
//
// It is parted from what is around it: what it was given are leaves of its own, and its results are not the
// caller's. What a pass gives has one node for its history, which differentiates within, and knows where in
// the caller's graph the rest of the way begins (Way). Three things come of that:
//
//     results   A formula may have saved a result itself (sigmoid's has). What comes to that one goes to the
//               caller's result, where its hooks are, and on from there; it is no way of this run's.
//     inputs    One may be made of another, which is no way of this run's either.
//     memory    The call holds its run, and the caller's nodes hold the call. Nothing here holds those but
//               the gradients that were given, as long as somebody has them.
//
// Within torch.func's transforms autograd sees what a tensor wraps, which takes no node from us: such a pass
// is given a run of its own, that begins in the caller's graph, and no ways. The run itself is made beside
// them, since passes within others share it. Gradients that were given before, apart from the caller's graph,
// are made of that run again when such a pass comes to them (There).
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <vector>

#include "run/results.h"

namespace bolt::run {

/// Do passes have to begin in the caller's graph: is a transform of torch.func under way, or one of these
/// tensors of one?
bool begins_there(const torch::autograd::variable_list& tangents);
/// What is made of plain tensors meanwhile is not wrapped for the transforms under way.
c10::impl::ExcludeDispatchKeyGuard apart_from_transforms();

struct SecondRun {
  /// A tensor of the run, and where in the caller's graph its gradient goes to.
  struct Way {
    at::Tensor from;  ///< undefined: it is none
    torch::autograd::Edge to;
  };
  /// Gradients in the caller's graph, and where in it the ways begin.
  struct There {
    torch::autograd::variable_list gradients;
    Tensors from;
  };
  using FindThere = std::function<There(const torch::autograd::variable_list& tangents)>;

  Tensors from;     ///< by edge; undefined: nothing leads there
  Tensors results;  ///< by tangent
  Tensors inner;    ///< by inner result: what others are made of, where that is parted from it

  /// A result that is on a way ends the passes that are to give what comes to it.
  void end_at_results() const;
  /// Where its ways begin: all of the above.
  Tensors begins() const;
  /// Gradients of the results for these tangents. Undefined: of what is undefined in `with_respect_to`, or
  /// what none of the results is made of. `there`: the same of a run that begins in the caller's graph; null:
  /// this one does.
  torch::autograd::variable_list differentiate(const Tensors& with_respect_to,
                                               const torch::autograd::variable_list& tangents,
                                               const std::vector<Way>& ways, const FindThere& there) const;
};

}  // namespace bolt::run

// run/second_run.h
// A run as eager makes it, where autograd sees it -> gradients that can be differentiated in turn.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <vector>

#include "run/results.h"

namespace bolt::run {

struct SecondRun {
  Tensors from;     ///< by edge; undefined: nothing leads there
  Tensors results;  ///< by tangent
  Tensors inner;    ///< by inner result: what others are made of, where that is parted from it

  /// Gradients of the results for these tangents. Undefined: of what is undefined in `with_respect_to`, or
  /// what none of the results is made of.
  torch::autograd::variable_list differentiate(const Tensors& with_respect_to,
                                               const torch::autograd::variable_list& tangents) const;
};

}  // namespace bolt::run

// run/trained/kept_inputs.h
// The inputs of a run whose gradients are needed -> the same again, for a second run (gradients of
// gradients).
//
// They are kept with their history where that is expected to be needed, or costs next to nothing. Elsewhere
// they are only remembered: whoever asks gets those that are still there, as they were. What the run itself
// writes to is copied before it.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "record/generators.h"
#include "run/trained/trained_links.h"

namespace bolt::run {

class KeptInputs {
 public:
  KeptInputs(const TrainedParts& parts, const TrainedLinks& links) : p_(parts), links_(links) {}

  /// Before the run, where inputs are to be kept: what a second run would not find as this one did. `drawn`:
  /// of its generators, if it draws.
  void keep_what_changes(const Tensors& inputs, std::optional<record::GeneratorStates> drawn);
  /// Behind the run. Hooks for saved tensors see what eager would have saved, whose writer does not disturb
  /// it then, if a second run is `expected`; nothing otherwise.
  void keep(const Tensors& inputs, bool expected);
  /// Behind the run, instead of that.
  void remember(const Tensors& inputs);

  /// As they were when the region ran, but for what nobody needs; without their history where they are not
  /// kept with it. `edges`: by edge of the region, where its gradient goes to.
  Tensors find(const torch::autograd::edge_list& edges, const std::vector<bool>& needed);
  /// Behind find(): raises where one of these was not as it had been.
  void demand(const torch::autograd::edge_list& edges, const std::vector<bool>& needed) const;
  std::optional<record::GeneratorStates>& drawn() { return drawn_; }

  void release();
  bool are_released() const { return released_; }

 private:
  at::Tensor find_one(size_t input, const torch::autograd::edge_list& edges) const;
  at::Tensor leaf_behind(size_t input, const torch::autograd::edge_list& edges) const;

  const TrainedParts& p_;
  const TrainedLinks& links_;
  std::vector<torch::autograd::SavedVariable> kept_;  ///< of the run's tape; empty: they are not kept
  Tensors as_it_is_;                                  ///< they, whoever writes to them
  struct Seen {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>
        tensor;       ///< none: a leaf given a gradient, or undefined
    int64_t version;  ///< -1: it is undefined
  };
  std::vector<Seen> seen_;  ///< those that are not kept
  // As they were before the run, where inputs are kept:
  std::optional<record::GeneratorStates> drawn_;
  Tensors changing_;             ///< those of TrainedLinks::changing, as they were, without a history
  std::vector<bool> otherwise_;  ///< inputs that were not as they had been when the run was made again
  bool released_ = false;
};

}  // namespace bolt::run

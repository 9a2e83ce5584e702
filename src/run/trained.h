// run/trained.h
// Trained: a region that gradients are needed of. Its forward part runs as any compiled region does, and what
// it gives is tied to one node of autograd's, which runs the backward part.
//
// What is kept in between is kept as autograd keeps it: as saved variables. So the user's hooks for saved
// tensors see each of them, one that was written to in the meantime gives eager's error, and each is let go
// of when its last reader has run.
//
// The backward part may fail where the forward part cannot: its results are out, and "as if not begun" means
// nothing any more. Then its tape is replayed, as long as what was saved is still there (Compiled::run_last);
// afterwards it raises. The region's own tape is replayed, with gradients, where gradients of gradients are
// wanted (create_graph); for that the inputs are needed, as they were. Those are kept where that costs next
// to nothing, and where it is to be expected (double_backward.h). Otherwise it is done where all are still
// there.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <optional>
#include <unordered_map>

#include "autograd/node_ptr.h"
#include "run/compiled.h"
#include "run/double_backward.h"
#include "run/replayed.h"
#include "run/trained_links.h"
#include "run/trained_sizes.h"
#include "support/stages.h"

namespace bolt::run {

class Trained;

/// The place in autograd's graph of one result among several: hooks of a result are not called in a pass that
/// does not come to it, though it comes to the node of all of them.
///
/// That of an input which the region has written to has an edge in front for what the input was before, as
/// eager's in-place operators have: where the input is a view, autograd takes it for one of its base. That
/// gradient is 0 here; it comes from the node of all results.
class ResultNode final : public torch::autograd::Node {
 public:
  std::string name() const override { return "TorchboltBackward"; }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (num_outputs() == 1) return std::move(gradients);
    const at::Tensor& gradient = gradients[0];
    const bool of_view =
        next_edge(0).is_valid() && gradient.defined();  // what is undefined, all of the base's is
    return {of_view ? gradient.new_zeros(gradient.sizes()) : at::Tensor(), gradient};
  }
};

/// What the forward part leaves for the backward part, of one call.
class TrainedNode final : public torch::autograd::Node {
 public:
  explicit TrainedNode(std::shared_ptr<Trained> region) : region_(std::move(region)) {}

  std::string name() const override { return "TorchboltBackward"; }
  void release_variables() override;

 private:
  friend class Trained;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;
  torch::autograd::variable_list apply_differentiably(const torch::autograd::variable_list& tangents);
  void demand_held(const std::vector<bool>& given) const;
  bool is_last(const std::vector<bool>& given) const;
  void note_gone(const std::vector<bool>& given);
  std::vector<at::Tensor> unpack_saved(bool last);
  std::optional<std::vector<at::Tensor>> find_inputs() const;
  at::Tensor leaf_behind(size_t input) const;

  const std::shared_ptr<Trained> region_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<torch::autograd::SavedVariable> inputs_;  ///< of the run's tape; empty: they are not kept
  struct Seen {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>
        tensor;       ///< none: a leaf given a gradient, or undefined
    int64_t version;  ///< -1: it is undefined
  };
  std::vector<Seen> seen_;  ///< those that are not kept
  // As they were before the run, where inputs are kept:
  std::optional<record::GeneratorStates> drawn_;
  std::vector<at::Tensor> changing_;  ///< those of TrainedLinks::changing, as they were, without a history
  record::CallGenerators generators_;
  std::vector<int64_t> values_;                   ///< of the region's symbols
  std::shared_ptr<const TrainedSizes::Set> set_;  ///< what they mean; null: no size differs
  std::vector<bool> gone_;  ///< by tangent: a pass that kept nothing has been through it
  bool released_ = false;
};

class Trained final : public Runnable, public std::enable_shared_from_this<Trained> {
 public:
  /// `tape`, `wanted`: of the run. Throws Error(Unsupported) where a result's history cannot be told.
  Trained(record::Tape tape, std::vector<record::TensorId> wanted, TrainedParts parts,
          std::unordered_map<int, at::Tensor> constants);

  std::vector<int> written_inputs() const override { return p_.forward->written_inputs(); }
  std::vector<size_t> rewritten() const override { return p_.rewritten; }
  bool forward_can_fail() const override { return p_.forward->can_fail(); }
  std::string graph_text() const override;
  std::string plan_text() const override;
  std::vector<StepFacts> costs() const override;
  void launch_at_once(const std::string& name) override;
  void note_passes_in(const std::shared_ptr<DoubleBackward>& noted) override { double_backward_ = noted; }
  /// Compiled::finish_code of both parts.
  void finish_code(const std::string& name, Stages& stages);

  // ---- for a chain of them
  bool requires_gradient(size_t output) const { return p_.differentiable[output] || p_.leaves[output]; }
  const std::vector<record::TensorId>& saved() const { return p_.saved; }
  /// How the output lies, over symbols().
  const lower::TensorOut& shown_as(size_t output) const {
    return p_.forward->lowered().outputs[links_.result_of[output]];
  }

 private:
  friend class TrainedNode;

  Tensors call(const Tensors& inputs, const std::vector<int64_t>& values,
               record::CallGenerators generators) override;
  void tie(const autograd::NodePtr& node, const std::vector<int64_t>& values, Tensors& fresh,
           Tensors& wholes) const;
  at::Tensor shown(size_t result, const std::vector<int64_t>& values, const Tensors& fresh) const;
  void demand_rewritable(const Tensors& inputs) const;
  void give_histories(const autograd::NodePtr& node, const Tensors& inputs) const;
  void begin(TrainedNode& node, const Tensors& inputs, const std::vector<int64_t>& values,
             const record::CallGenerators& generators) const;
  void keep_inputs(TrainedNode& node, const Tensors& inputs) const;
  void remember_inputs(TrainedNode& node, const Tensors& inputs) const;
  void save(TrainedNode& node, const Tensors& inputs, const Tensors& results) const;
  void keep_what_changes(TrainedNode& node, const Tensors& inputs) const;
  void give_views(const Tensors& inputs, const Tensors& wholes, const std::vector<int64_t>& values,
                  Tensors& results) const;
  Tensors complete(Tensors given, const TrainedSizes::Set* set) const;
  Tensors run_backward(Tensors given, const TrainedNode& node) const;
  Tensors replay_backward(const Tensors& given, const std::vector<int64_t>& values) const;
  torch::autograd::variable_list spread(Tensors gradients, const std::vector<bool>& given) const;
  torch::autograd::variable_list differentiate(Tensors inputs, const torch::autograd::variable_list& tangents,
                                               const std::vector<int64_t>& values,
                                               const record::CallGenerators& generators) const;

  const TrainedParts p_;
  Replayed as_eager_;  ///< the run's own tape
  const std::unordered_map<int, at::Tensor> constants_;
  const TrainedLinks links_;
  std::vector<size_t> edges_;  ///< inputs of the run that are given a gradient
  bool draws_ = false;
  std::shared_ptr<DoubleBackward> double_backward_ = std::make_shared<DoubleBackward>();
};

}  // namespace bolt::run

// run/trained/trained_call.h
// What one call of a region that gradients are needed of leaves for its backward passes, and its nodes in
// autograd's graph.
//
// Results lead to different inputs: q to the weight of q, a loss of two to the head that it is of. A pass
// that comes to one of them must not come to what the others are made of, since hooks there would be called
// with no gradient. So the inputs are taken together that the same results lead to, and each such group has a
// node. The backward part runs once all the same, when a pass comes to the first of the nodes: results have
// nodes in front of these, which tell of their gradients, and the engine calls those first, by their numbers.
// What a result that it calls afterwards adds, as one on another device, is computed and added when it is
// there.
//
//     results            r0      r1          each tells of its gradient (ResultNode)
//                       /  \    /  \         .
//     groups of inputs g0    g1     g2       by the results that lead there (TrainedNode)
//
// A result that others are made of (autograd::Inner) has its node behind theirs. As a rule nothing is handed
// over between the two: the gradient stays inside the backward part, which the groups' nodes run. Only where
// somebody looks, by a hook on the inner result or since the pass asks for its gradient, the part up to there
// is run by itself, and the rest takes what the hooks made of it.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "autograd/node_ptr.h"
#include "record/generators.h"
#include "run/trained/kept_inputs.h"
#include "run/trained/passes_under_way.h"
#include "run/trained/second_run.h"
#include "run/trained/trained_sizes.h"

namespace bolt::run {

class Trained;
class TrainedCall;

/// The way to the inputs of one group. Its inputs are the group's tangents that tie() has come to.
class TrainedNode final : public torch::autograd::Node {
 public:
  TrainedNode(std::shared_ptr<TrainedCall> call, size_t group) : call_(std::move(call)), group_(group) {}
  ~TrainedNode() override;

  std::string name() const override { return "TorchboltBackward"; }
  void release_variables() override;

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& tangents) override;

  const std::shared_ptr<TrainedCall> call_;
  const size_t group_;
};

/// The place in autograd's graph of one result among several: hooks of a result are not called in a pass that
/// does not come to it, though it comes to nodes that it leads to.
///
/// That of an input which the region has written to has an edge in front for what the input was before, as
/// eager's in-place operators have: where the input is a view, autograd takes it for one of its base. That
/// gradient is 0 here; it comes from the other nodes.
class ResultNode final : public torch::autograd::Node {
 public:
  ResultNode(std::shared_ptr<TrainedCall> call, size_t tangent, bool is_rewritten)
      : call_(std::move(call)), tangent_(tangent), is_rewritten_(is_rewritten) {}
  ~ResultNode() override;

  std::string name() const override { return "TorchboltBackward"; }

 private:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  const std::shared_ptr<TrainedCall> call_;
  const size_t tangent_;
  const bool is_rewritten_;
};

class TrainedCall : public std::enable_shared_from_this<TrainedCall> {
 public:
  TrainedCall(std::shared_ptr<const Trained> region, std::vector<int64_t> values,
              std::shared_ptr<const TrainedSizes::Set> set, record::CallGenerators generators);
  /// Leading to where the inputs come from, so before the run where that changes it. Whoever asks holds them
  /// until it is over.
  std::vector<autograd::NodePtr> make_nodes(const std::vector<at::Tensor>& inputs);

  /// Gives `t`, the tangent's tensor, its history. Tangents come one after another, in their order.
  void tie(at::Tensor& t, size_t tangent);
  /// Gives an input that the run wrote to its new history, as eager's in-place operators do: what is a view
  /// is a part of what its base has become. The program has written already, and counted its writes.
  void tie_rewritten(const at::Tensor& input, size_t tangent);

 private:
  friend class Trained;
  friend class TrainedNode;
  friend class ResultNode;

  torch::autograd::edge_list edges_to_groups(size_t tangent, const at::Tensor& of) const;
  bool tell(size_t tangent, const at::Tensor& gradient, const autograd::NodePtr& node,
            torch::autograd::variable_list& to_inner);
  bool is_seen(size_t inner) const;
  bool is_last_before(size_t inner, size_t tangent, const PassUnderWay& pass) const;
  at::Tensor gradient_through(PassUnderWay& pass, size_t inner, const autograd::NodePtr& node);
  torch::autograd::variable_list gradients_of(size_t group, torch::autograd::variable_list&& tangents,
                                              const autograd::NodePtr& node);
  void compute(PassUnderWay& pass, const autograd::NodePtr& node);
  std::vector<bool> groups_to_come(const PassUnderWay& pass) const;
  torch::autograd::variable_list differentiate(const torch::autograd::variable_list& tangents,
                                               const std::vector<bool>& seen, int asked);
  SecondRun& second_run(const torch::autograd::variable_list& tangents, const std::vector<bool>& seen,
                        bool in_callers);
  std::vector<SecondRun::Way> ways_from(const SecondRun& again) const;
  torch::autograd::Edge edge_to_result(size_t tangent) const;
  void demand_held(size_t tangent) const;
  bool is_last(const std::vector<bool>& given) const;
  bool is_over(const std::vector<bool>& given) const;
  void release_runs();
  void note_gone(const std::vector<bool>& given);
  bool is_read(size_t saved, const std::vector<bool>& given) const;
  std::vector<at::Tensor> unpack_saved(const std::vector<bool>& given, bool last,
                                       const autograd::NodePtr& node);
  torch::autograd::edge_list edges() const;
  void release();

  const std::shared_ptr<const Trained> region_;
  std::vector<torch::autograd::SavedVariable> saved_;
  KeptInputs inputs_;
  /// Those that passes have asked for, by the inner results (tangents) that somebody looked at, and whether
  /// the run begins in the caller's graph.
  std::map<std::pair<std::vector<bool>, bool>, SecondRun> again_;
  torch::autograd::edge_list next_;  ///< of those, by edge: gradients keep them that outlive the nodes
  record::CallGenerators generators_;
  std::vector<int64_t> values_;                   ///< of the region's symbols
  std::shared_ptr<const TrainedSizes::Set> set_;  ///< what they mean; null: no size differs
  std::vector<bool> gone_;  ///< by tangent: a pass that kept nothing has been through it
  PassesUnderWay passes_;
  std::mutex mutex_;  ///< of all of the above

  // The nodes hold the call, and only autograd holds them: a long chain of nodes is taken apart by its edges.
  mutable std::mutex nodes_mutex_;
  std::vector<TrainedNode*> nodes_;        ///< by group; null: nothing leads there any more
  std::vector<ResultNode*> result_nodes_;  ///< by tangent; null: it has none, or that is gone
  /// While the run is under way, by rewritten input: where it came from, for one that is a view with a
  /// history.
  torch::autograd::edge_list rewritten_from_;
};

}  // namespace bolt::run

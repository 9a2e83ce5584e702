// run/trained/trained.h
// Trained: a region that gradients are needed of. Its forward part runs as any compiled region does, and what
// it gives is tied to nodes of autograd's, which run the backward part (trained_call.h).
//
// What is kept in between is kept as autograd keeps it: as saved variables. So the user's hooks for saved
// tensors see each of them, one that was written to in the meantime gives eager's error, and each is let go
// of when its last reader has run.
//
// The backward part may fail where the forward part cannot: its results are out, and "as if not begun" means
// nothing any more. Then its tape is replayed, as long as what was saved is still there (Compiled::run_last);
// afterwards it raises. A pass that comes to some of the results may have a program of its own
// (partial_passes.h). The region's own tape is replayed, with gradients, where gradients of gradients are
// wanted (create_graph); for that the inputs are needed, as they were. Those are kept where that costs next
// to nothing, and where it is to be expected (double_backward.h). Otherwise it is done where all are still
// there. Where half of the calls ask for them the program is one run too many, and calls replay the tape at
// once.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>

#include "run/compiled.h"
#include "run/double_backward.h"
#include "run/replayed.h"
#include "run/trained/partial_passes.h"
#include "run/trained/trained_call.h"
#include "run/trained/trained_links.h"
#include "run/trained/trained_sizes.h"
#include "support/stages.h"

namespace bolt::run {

class Trained final : public Runnable, public std::enable_shared_from_this<Trained> {
 public:
  /// `tape`, `wanted`: of the run. Throws Unsupported where a result's history cannot be told.
  Trained(record::Tape tape, std::vector<record::TensorId> wanted, TrainedParts parts,
          std::unordered_map<int, at::Tensor> constants);

  std::vector<int> written_inputs() const override { return p_.forward->written_inputs(); }
  std::vector<size_t> rewritten() const override { return p_.rewritten; }
  bool forward_can_fail() const override { return p_.forward->can_fail(); }
  Texts texts() const override;
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
  friend class TrainedCall;

  Tensors call(const Tensors& inputs, const std::vector<int64_t>& values,
               record::CallGenerators generators) override;
  void tie(TrainedCall* call, const std::vector<at::Tensor>& inputs, const std::vector<int64_t>& values,
           Tensors& fresh, Tensors& wholes) const;
  at::Tensor shown(size_t result, const Tensors& inputs, const std::vector<int64_t>& values,
                   const Tensors& fresh) const;
  void demand_rewritable(const Tensors& inputs) const;
  void give_histories(TrainedCall* call, const Tensors& inputs) const;
  void save(TrainedCall& call, const Tensors& inputs, const Tensors& results) const;
  void give_views(const Tensors& inputs, const Tensors& wholes, const std::vector<int64_t>& values,
                  Tensors& results) const;
  std::vector<autograd::Arrives> ways_of(const std::vector<bool>& given, const std::vector<bool>& seen) const;
  bool is_usual(const PartialPasses::Kind& kind) const;
  Tensors run_part(Tensors all, const PartialPasses::Program* some,
                   const std::vector<autograd::Arrives>& ways, const TrainedCall& call) const;
  torch::autograd::variable_list run_backward(Tensors all, const std::vector<bool>& given,
                                              const std::vector<bool>& seen, const TrainedCall& call) const;
  at::Tensor gradient_through(Tensors all, const std::vector<bool>& given, const std::vector<bool>& seen,
                              size_t inner, const TrainedCall& call) const;
  SecondRun run_again(Tensors inputs, const std::vector<int64_t>& values,
                      const record::CallGenerators& generators, const torch::autograd::edge_list& next,
                      const torch::autograd::edge_list& parted, bool begins_there) const;

  const TrainedParts p_;
  Replayed as_eager_;  ///< the run's own tape
  const std::unordered_map<int, at::Tensor> constants_;
  const TrainedLinks links_;
  mutable PartialPasses partial_;
  std::vector<size_t> place_of_edge_;  ///< among what the usual backward part gives
  std::vector<at::Tensor> nothing_;    ///< by inner result: what stands for a tangent that nobody reads
  mutable UsualDoubleBackward twice_;
  std::shared_ptr<DoubleBackward> double_backward_ = std::make_shared<DoubleBackward>();
};

}  // namespace bolt::run

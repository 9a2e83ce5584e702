// run/trained/trained_links.h
// The two parts of a region that gradients are needed of -> how what they give and are given belongs
// together: found once, when the region is made.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "autograd/inner_results.h"
#include "run/compiled.h"
#include "run/trained/trained_sizes.h"
#include "run/trained/views.h"
#include "run/wishes.h"

namespace bolt::run {

/// The two parts, and how they belong together. Numbers of tensors are those of both parts' tapes.
struct TrainedParts {
  std::shared_ptr<Compiled> forward;                ///< gives the outputs, then what of `saved` is no input
  std::shared_ptr<Compiled> backward;               ///< null: there is nothing to compute
  std::vector<record::TensorId> saved, tangent_of;  ///< the backward part's inputs
  std::vector<record::TensorId> gradients;          ///< by input of the run; -1: none
  std::vector<autograd::Inner> inner;               ///< results that others are made of
  std::vector<autograd::Arrives> ways;              ///< by inner result: of the passes that `backward` is for
  /// What `backward` was made of for those, and programs for other passes are; empty: there are no inner
  /// results.
  record::Tape of_any_way;
  std::vector<std::vector<bool>> comes_from;  ///< by input: the tangents that lead to its gradient
  std::vector<bool> differentiable;           ///< by output of the run
  std::vector<bool> leaves;                   ///< by output: Joint::leaves
  std::vector<size_t> rewritten;              ///< inputs of the run that the last tangents belong to
  std::vector<bool> made_inside;              ///< by input: PieceOf::made_inside
  std::vector<bool> written_later;            ///< by input: PieceOf::written_later
  std::vector<bool> written_again;            ///< by input: PieceOf::written_again
  std::vector<bool> kept_by_eager;            ///< by input
  std::shared_ptr<const TrainedSizes> sizes;  ///< null: nothing differs between calls
  Wishes wishes;                              ///< that they were made with

  /// As the split gave it.
  const record::Tape& backward_tape() const { return inner.empty() ? backward->tape() : of_any_way; }
};

using OutKind = lower::TensorOut::Kind;

inline const record::TensorInfo& info_of(const record::Tape& tape, record::TensorId id) {
  return tape.tensors[id];
}
/// Of `id` among them; their number: it is none of them.
inline size_t position(const std::vector<record::TensorId>& ids, record::TensorId id) {
  return static_cast<size_t>(std::find(ids.begin(), ids.end(), id) - ids.begin());
}

class TrainedLinks {
 public:
  /// `tape`, `wanted`, `constants`: of the run; they must stay. Throws Unsupported where a result's
  /// history cannot be told.
  TrainedLinks(const record::Tape& tape, const std::vector<record::TensorId>& wanted,
               const TrainedParts& parts, const std::unordered_map<int, at::Tensor>& constants);

  /// Inputs of the run that are given a gradient.
  std::vector<size_t> edges;
  /// Edges, by the tangents that lead to them. Where results lie on several devices there is one group, since
  /// what the edges are told of would have to be waited for.
  struct Group {
    std::vector<size_t> tangents;
    std::vector<size_t> edges;  ///< places in `edges`
  };
  std::vector<Group> groups;

  /// Where a saved tensor is found after the forward part has run.
  struct SavedFrom {
    enum class Kind : uint8_t { Input, Result } kind;
    size_t index;
  };
  std::vector<size_t> result_of;  ///< by output: which of the forward part's results it is
  std::vector<SavedFrom> saved_from;
  std::vector<size_t> tied;  ///< by tangent of a result: which of the forward part's it is
  std::vector<int> inner;    ///< by tangent: which of the inner results it belongs to; -1: none
  std::vector<std::vector<size_t>>
      before;                            ///< by tangent: the inner results (tangents) that a pass goes on to
  std::vector<record::TensorId> beside;  ///< of those: what shows an input without its history
  std::vector<size_t> viewed;            ///< tangents that belong to tensors of the run
  std::vector<size_t> shown;             ///< outputs that are views, and that no views of the tape's lead to
  std::optional<Views> views;  ///< outputs; of inputs, what tangents belong to, and those of `shown`
  /// By tangent: does what it leads to read anything that is saved?
  std::vector<bool> reads_saved;
  /// By saved tensor: the tangents behind which it is read. Empty where there is one tangent.
  std::vector<std::vector<bool>> readers;
  /// By tangent: the inputs of the run that gradients behind it are made of.
  std::vector<std::vector<bool>> made_of;
  /// An input whose memory the run writes to, or a later piece of the region does.
  struct Changing {
    size_t input;
    bool is_read;  ///< what was there before is needed by a second run
  };
  std::vector<Changing> changing;
  bool draws = false;             ///< random numbers
  bool inputs_are_cheap = false;  ///< to keep, beside what is saved
  std::vector<bool> copied;       ///< inputs that are kept as copies where a second run is expected

  /// Is it memory of its own?
  bool is_own(size_t result) const;
  /// Does the run write to the input what autograd follows?
  bool is_rewritten(size_t input) const {
    return std::ranges::find(p_.rewritten, input) != p_.rewritten.end();
  }
  /// Does the result show such an input?
  bool shows_rewritten(size_t result) const;
  /// By input: is any gradient behind these tangents made of it?
  std::vector<bool> inputs_behind(const Tensors& tangents) const;
  /// What the node has a gradient for, as the run's tape has it.
  record::TensorId on_tape(size_t tangent) const;

 private:
  void find_saved(const std::unordered_map<int, at::Tensor>& constants);
  void find_views();
  const record::Entry* shown_by(record::TensorId id, std::string_view name) const;
  bool is_shown_beside(record::TensorId id) const;
  void find_shown(const std::vector<record::TensorId>& views, std::vector<record::TensorId>& bases);
  void demand_tied(const lower::TensorOut& view) const;
  void find_tangents();
  void find_inner();
  void find_groups();
  void find_readers_of_saved();
  void find_readers_of_each(const std::vector<std::vector<bool>>& from);
  void find_inputs_of_each();
  void find_changing(const std::unordered_map<int, at::Tensor>& constants);
  void find_cost_of_inputs();
  void find_copied();

  const record::Tape& tape_;
  const std::vector<record::TensorId>& wanted_;
  const TrainedParts& p_;
};

}  // namespace bolt::run

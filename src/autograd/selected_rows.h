// autograd/selected_rows.h
// A tape on which masks select rows (`F.mse_loss(pred[mask], y[mask])`, with gradients) -> the same
// computation on all rows, in which those that the mask does not select count for nothing.
//
// How many rows a mask selects is data, and autograd's formulas are written down for one set of sizes. Yet
// mostly that size only flows on: element by element, along other dimensions, into a sum or a mean over the
// rows. So fakes of what was selected have all rows, in the place of which the run had some:
//
//     x[mask]                 masked_fill(x, not mask, a number that is harmless)
//     what works row by row   itself
//     a sum over the rows     the sum, where rows that do not count are 0
//     a mean, a loss          such a sum, divided by how many rows count
//     out[mask] = rows        where(mask, rows, out)
//
// Sizes are known then, nothing waits for a device, and it all runs in kernels that read x itself. Gradients
// of rows that do not count are dropped where they were selected, whatever was computed of them in between;
// so that none leaves by another way, nothing but rows may require a gradient between there and the sum.
//
// It is not done for products and the like, which are worth having fewer rows, and none of it is where
// anything else is made of the rows, or of how many there are: then a piece of the region finds the places
// (record/left_to_eager.h), and on a device regions end before such operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "record/tape.h"
#include "support/size_fact.h"
#include "support/symbols.h"

namespace bolt::autograd {

/// What becomes of each entry.
struct RowPlan {
  enum class Kind : uint8_t { none, places, matrix, rows };
  struct Of {
    Kind kind = Kind::none;
    int group = -1;
    int dim = 0;  ///< of rows: the one that they lie along; of places: which dimension of the mask's
  };
  enum class Step : uint8_t { plain, find, hand_on, select, by_row, reduce, loss, put };

  std::vector<Of> tensors;  ///< by tensor of the tape
  std::vector<Step> steps;  ///< by entry
  std::vector<int> groups;  ///< by entry, of those that are not plain
  std::vector<int> along;   ///< by entry: the dimension of rows, counted from the last one: 1, 2, ...
  std::vector<record::TensorId> masks;  ///< by group

  bool gives_rows(const record::Entry& entry) const;
};

/// Nothing: no mask selects rows there, or more is made of them than is known here.
std::optional<RowPlan> plan_of_rows(const record::Tape& run, const std::vector<record::TensorId>& wanted);

/// Takes sizes that masks decide off a tape, where a plan of rows does without them, and the facts about
/// them, which hold as long as the plan does. `numbers`: that Python goes on with. False: nothing was
/// changed.
bool forget_selected_sizes(record::Tape& run, const std::vector<record::TensorId>& wanted,
                           const std::vector<uint64_t>& dynamic, const SymbolTable& numbers,
                           std::vector<SizeFact>& facts);

/// The run on fakes.
class SelectedRows {
 public:
  /// Throws Unsupported where rows are selected and there is no plan.
  SelectedRows(const record::Tape& run, const std::vector<record::TensorId>& wanted);

  bool takes(size_t entry) const { return plan_ && plan_->steps[entry] != RowPlan::Step::plain; }
  /// Are its results others than in the run?
  bool gives_rows(size_t entry) const;
  /// Replaces the arguments of an entry that it takes by what the entry gives.
  void call(size_t entry, torch::jit::Stack& stack);

 private:
  struct Mask {
    at::Tensor dropped;  ///< by row: does it not count?
    at::Tensor count;
  };
  at::Tensor dropped(int group, const at::Tensor& rows, int64_t along) const;
  at::Tensor without_dropped(int group, const at::Tensor& rows, int64_t along) const;
  void find(int group, torch::jit::Stack& stack);
  void select(size_t entry, torch::jit::Stack& stack);
  void reduce(size_t entry, torch::jit::Stack& stack);
  void loss(size_t entry, torch::jit::Stack& stack);
  void put(size_t entry, torch::jit::Stack& stack);
  void hand_on(const record::Entry& entry, torch::jit::Stack& stack) const;
  at::Tensor mean(int group, const at::Tensor& summed, int64_t others, at::ScalarType type) const;

  const record::Tape& run_;
  std::optional<RowPlan> plan_;
  std::vector<Mask> masks_;  ///< by group
};

}  // namespace bolt::autograd

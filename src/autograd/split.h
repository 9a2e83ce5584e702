// autograd/split.h
// A joint tape -> one tape for the forward pass and one for the backward pass, and what has to be kept
// between them. What that is partition.h decides; here it is carried out.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/joint.h"
#include "autograd/partition.h"

namespace bolt::autograd {

struct Saved {
  std::vector<record::TensorId> tensors;  ///< in order of their first use; inputs of the run are among them
  /// Of the memory that they keep: each storage once, and none that an input of the run lies in, which is
  /// alive anyway.
  int64_t bytes = 0;
};
/// What eager keeps: whatever the backward part reads of the forward part.
Saved saved(const Joint& joint);

/// Tensors have the numbers that they have on the joint tape.
struct Split {
  record::Tape forward;   ///< inputs: those of the run. Gives `outputs` and `saved`.
  record::Tape backward;  ///< inputs: `saved`, then the tangents. Gives `gradients`.
  std::vector<record::TensorId> outputs, saved, gradients;
  /// Inputs of the run among `saved` that eager does not keep (Partition::inputs_kept_anew).
  std::vector<record::TensorId> inputs_kept_anew;
  /// Of the backward part, where sizes or numbers differ between calls. Symbols keep their names in both
  /// parts, since tensors keep their numbers. Those of inputs that the backward part does not have are
  /// numbers to it, whose values the forward part's caller knows; facts say what sizes its inputs have.
  Varying dynamic;
  std::vector<SizeFact> facts;
};
Split split(const Joint& joint, const Budget& budget = {});

}  // namespace bolt::autograd

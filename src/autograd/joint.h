// autograd/joint.h
// A recorded run that needs gradients -> one tape that computes its results and the gradients of its inputs.
//
// The run's tape is replayed on fakes (fake.h), so that ATen's own autograd makes the nodes of the backward
// pass; those are then walked (walk.h). Both write to the joint tape (writer.h) what arrived below autograd.
// What ATen keeps whole there is kept whole: normalisations, convolutions, attention and losses, with the
// backward operator that belongs to them. The joint tape is of the form of any other, and goes the same road:
// no entry of it is differentiated any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "record/tape.h"
#include "support/error.h"
#include "support/size_fact.h"
#include "support/symbols.h"

namespace bolt::autograd {

/// What is differentiated.
struct Asked {
  const record::Tape& run;
  const std::vector<record::TensorId>& wanted;
  const std::set<record::TensorId>& parts;
  const std::set<int>& own;  ///< inputs that the run made of numbers, which are none of the caller's
  const std::set<record::TensorId>& inner;  ///< see Inner
};

/// A wanted tensor that other wanted ones are made of: the logits beside the loss. A pass comes to it through
/// those, from outside, or both.
struct Inner {
  size_t tangent = 0;             ///< from outside
  record::TensorId through = -1;  ///< what comes through the others
  record::TensorId whole = -1;    ///< the sum of both, which goes on
  std::vector<bool> from;         ///< by tangent: it leads there, and so through
  bool is_given = false;          ///< as a rule something comes from outside; else its tangent is not there
};

/// What differs between calls of a run.
struct Varying {
  std::vector<uint64_t>
      dims;  ///< by tape input: a bit for each dimension, and for strides (support/nesting.h)
  SymbolTable numbers;

  bool any() const {
    return !numbers.empty() || std::any_of(dims.begin(), dims.end(), [](uint64_t bits) { return bits != 0; });
  }
};

struct Joint {
  /// Inputs: those of the run's tape, in their order, then the tangents. Tensors of the run's tape have the
  /// number here that they have there, so what is said of their sizes (t12_0) stays true.
  record::Tape tape;
  size_t backward = 0;  ///< the first entry of the backward part
  size_t tangents = 0;  ///< the first of the tape's inputs that is one
  /// For each tangent: the tensor that it is the gradient of. It is a wanted one, or, of several wanted ones
  /// that show parts of it, the one whose memory that is. What an input is seen through has none: who makes
  /// such a view again differentiates it. The last ones are inputs of the run (`rewritten`).
  std::vector<record::TensorId> tangent_of;
  std::vector<record::TensorId> outputs;  ///< the wanted tensors
  std::vector<bool> differentiable;       ///< by output: it requires a gradient
  std::vector<Inner> inner;
  /// By output: a leaf that the run made (requires_grad_()), from which no gradient goes on.
  std::vector<bool> leaves;
  /// Inputs, by their index, to which the run writes what autograd follows: afterwards they have a history
  /// that leads into the run.
  std::vector<size_t> rewritten;
  std::vector<record::TensorId>
      gradients;  ///< for each input of the run; -1: none, it needs none or has none
  /// By input: may it be kept where eager would not keep it? What the caller writes to between the passes
  /// would be missed; of a parameter it would be, too, by nearly anything that eager keeps. Empty: all may.
  std::vector<bool> keepable;
  /// By input: it is gone when the forward part has run, unless the backward part keeps it. Empty: none is.
  std::vector<bool> passing;
  /// By input: which tangents its gradient comes from.
  std::vector<std::vector<bool>> comes_from;

  // ---- where sizes or numbers differ between calls (follow.h)
  /// What Args::syms and `sizes` are written over, in both parts: sizes of the run's inputs (t3_0), and
  /// numbers.
  SymbolTable symbols;
  std::vector<bool> operands;   ///< by symbol: a number that is an operand of arithmetic and nothing else
  std::vector<Syms> sizes;      ///< by tensor of the tape; empty: no size of it differs
  std::vector<SizeFact> facts;  ///< what is taken for granted about all that may differ
};

/// Of one operator: what it needs for its results or for its gradient is no matter of tensors that stand for
/// others. Without it the tape might be followed (record/left_to_eager.h).
class NotFollowed : public Unsupported {
 public:
  NotFollowed(size_t entry_, const std::string& why) : Unsupported(why), entry(entry_) {}
  size_t entry;  ///< of the tape that is differentiated
};

/// Throws Unsupported, with the reason, for what cannot be said so: gradients that rest on numbers out
/// of tensors, Python's own functions; NotFollowed, where that is a single operator's. What is not `dynamic`
/// is as in the recorded run.
/// `parts`: wanted tensors that the gradient is taken of as a part of what they show. `own`, `inner`: see
/// Asked.
Joint make_joint(const record::Tape& run, const std::vector<record::TensorId>& wanted,
                 const std::set<record::TensorId>& parts = {}, const Varying& dynamic = {},
                 const std::set<int>& own = {}, const std::set<record::TensorId>& inner = {});

/// How far a tensor reaches into its storage, which has that many bytes at least.
size_t bytes_reached(const record::TensorInfo& info);
/// Does it fill its memory from the beginning, in whatever order?
bool fills_its_memory(const record::TensorInfo& info);

/// As text: that of the tape (record/text.h), with comments that say where the parts begin.
std::string print(const Joint& joint);

}  // namespace bolt::autograd

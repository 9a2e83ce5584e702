// autograd/trial.h
// A run's tape and other sizes of its inputs -> the joint tape that it would have given.
//
// The recorded run stays as it is; a trial has a copy of its tape, in which sizes of the inputs are others.
// While that copy is replayed on fakes, the tensors that it makes tell it their sizes, so that numbers which
// the program computed from sizes (Arg::syms) can be computed for the next entry.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/joint.h"

namespace bolt::autograd {

/// Of the symbols that differ between calls.
using Assignment = std::unordered_map<Sym, int64_t>;

struct Trial {
  /// The inputs lie as they lay, with gaps as large as in the run, or as a symbol of a stride says.
  Trial(const record::Tape& recorded, Assignment values);

  int64_t value_of(Sym number) const;
  /// The run's tensor is like that in this trial; so is `info`, what another tape knows of it.
  void learn(record::TensorId id, const at::Tensor& made, record::TensorInfo& info);
  /// Of the run's tensor, if it had these sizes. Nothing: it was not dense.
  std::optional<record::Dims> strides_of(record::TensorId id, at::IntArrayRef sizes) const;

  record::Tape run;
  Assignment values;
};

/// Nothing: ATen, or we, cannot do it with these sizes.
std::optional<Joint> try_joint(Trial& trial, const Asked& asked);

}  // namespace bolt::autograd

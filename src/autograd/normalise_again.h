// autograd/normalise_again.h
// A normalisation of channels, or of groups of them, whose statistics are kept, computed again: what it gives
// follows from them element by element, and none of what was normalised is summed up a second time.
//
//   torchbolt::normalise_again(input, weight, bias, mean, reciprocal deviation)
//   torchbolt::normalise_groups_again(input, weight, bias, mean, reciprocal deviation)
//
// They have the first result of aten::native_batch_norm in training and of aten::native_group_norm, whose
// second and third are the mean and what follows it here.
#pragma once

#include "record/tape.h"

namespace bolt::autograd {

/// Is it one that gives its statistics?
bool gives_statistics(const record::Entry& entry);

/// Is it such a normalisation, whose statistics are kept, and its first result is not? Statistics that are
/// rounded to half precision, as those of the processor may be, are not what the result was made of.
template <class IsKept>
bool may_be_normalised_again(const record::Tape& tape, const record::Entry& entry, IsKept is_kept) {
  if (!gives_statistics(entry) || entry.results.size() != 3) return false;
  auto kept = [&](size_t i) {
    const auto& tensors = entry.results[i].tensors;
    return tensors.size() == 1 && tensors[0] >= 0 && is_kept(tensors[0]);
  };
  auto is_exact = [&](size_t i) {
    return !at::isReducedFloatingType(tape.tensors[entry.results[i].tensors[0]].dtype);
  };
  return !kept(0) && kept(1) && kept(2) && is_exact(1) && is_exact(2);
}

/// What takes its place, of the same tensors.
record::Entry normalised_again(record::Tape& tape, const record::Entry& entry);

}  // namespace bolt::autograd

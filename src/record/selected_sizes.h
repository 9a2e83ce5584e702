// record/selected_sizes.h
// Sizes of what masks select -> which of them are the same in each call: `pred[mask]` and `y[mask]` have as
// many rows as `mask` has ones, whichever way, and however often, they were found.
#pragma once

#include <optional>

#include "record/tape.h"

namespace bolt::record {

/// Do two tensors hold the same, being one, or made in the same way of the same (`labels != -100`, twice)?
/// Where anything writes to what they are made of, that is not said.
bool hold_the_same(const Tape& tape, TensorId a, TensorId b);

/// Are sizes of tensors data that do not lie on the processor, which would have to be waited for?
bool has_data_sizes_on_device(const Tape& tape);

/// Whose size that of a tensor is, which a mask has selected, which was sliced along another dimension or
/// which was computed of such element by element: of rows the first that the region has found of that mask,
/// else a size of what was selected from. Nothing: it is not known to be another's.
struct SizeOrigin {
  TensorId tensor;
  int dim;
};
std::optional<SizeOrigin> selected_size(const Tape& tape, TensorId tensor, int dim);

/// The size of a tensor that the only element of `number` is: of sequences that are packed, how many have a
/// first step (`batch_sizes[0]`), which is all of them.
std::optional<SizeOrigin> size_in(const Tape& tape, TensorId number);

}  // namespace bolt::record

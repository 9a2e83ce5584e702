// record/recurrent.h
// Recurrent layers on a tape -> which of them eager differentiates better than we can.
//
// What a library's forward pass leaves for its backward pass is memory whose size the library alone knows,
// and it is there or not by what autograd sees of the arguments. Where there is no such library a layer is as
// many operators as its sequences have steps, another program for each length. In both cases the call stays
// whole and is eager's, in a piece of its own (autograd/cuts.h), with compiled pieces around it.
#pragma once

#include "record/tape.h"

namespace bolt::record {

/// Is it a recurrent layer that is left to eager, where gradients are wanted of the tape? `sizes_differ`:
/// between calls.
bool is_left_to_eager(const Tape& tape, const Entry& entry, bool sizes_differ);

/// What a result of a recurrent layer is as large as, but for the last size of the first one: the sequences
/// that it is given, or a state.
TensorId source_of_size(const Entry& layer, size_t result);

}  // namespace bolt::record

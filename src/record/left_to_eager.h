// record/left_to_eager.h
// Operators on a tape -> which of them eager differentiates better than we can.
//
// Recurrent layers: what a library's forward pass leaves for its backward pass is memory whose size the
// library alone knows, and it is there or not by what autograd sees of the arguments. Where there is no such
// library a layer is as many operators as its sequences have steps, another program for each length.
//
// Embeddings with sparse gradients: a gradient that is no memory with strides is no value of a program.
//
// Products of groups (_grouped_mm) of types that a GPU has no kernel for: ATen reads where groups end out of
// a tensor before it chooses a kernel, and a tensor that stands for another has no data.
//
// Operators that find sizes out (unique, nonzero, what packs sequences), and what pads packed ones: a piece
// behind one knows the sizes of what it is given as any program does, so gradients come through products of
// as many rows as data say.
//
// Others show only when they are differentiated (autograd::NotFollowed, run/trained/make_differentiated.cpp).
//
// In all cases the call stays whole and is eager's, in a piece of its own (autograd/pieces.h), with compiled
// pieces around it.
#pragma once

#include <cstddef>
#include <vector>

#include "record/tape.h"

namespace bolt::record {

/// The entries that are left to eager, in order, where gradients are wanted of the tape. `sizes_differ`:
/// between calls.
std::vector<size_t> left_to_eager(const Tape& tape, bool sizes_differ);

}  // namespace bolt::record

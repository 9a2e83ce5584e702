// autograd/written_apart.h
// Copies of what is written to just afterwards -> no copy, and what is written lies apart:
//
//   %b = f(..), %c = clone(%b), silu_(%b)   ->   %a = f(..), %c = alias(%a), %b = silu(%a)
//
// Autograd copies so what an activation in place would overwrite and its gradient is made of. As memory goes
// that is the same, but what was and what is are two things then: each may be kept, and each be computed
// again from what the other is made of (flow.h computes all of a storage again, with what is written to it).
// Entries keep their places.
#pragma once

#include <vector>

#include "record/tape.h"
#include "support/sym.h"

namespace bolt::autograd {

/// `sizes`: by tensor, those of the tape's tensors; empty: none differs between calls.
void write_apart(record::Tape& tape, std::vector<Syms>& sizes);

}  // namespace bolt::autograd

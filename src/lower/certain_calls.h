// lower/certain_calls.h
// Tape -> from where on its calls cannot raise.
//
// Who calls a tape's operators again must be able to take back what the caller can see of it, since an
// operator may raise (an index out of range), and keeps copies for that of all that is written. An optimizer
// writes every parameter and what it knows of it, several times, when nothing is left that could raise:
// element by element, floating point numbers of the sizes that they had when it was recorded.
#pragma once

#include <cstddef>

#include "record/tape.h"

namespace bolt::lower {

/// The first entry of those at the end that raise for nothing but want of memory, in calls with tensors of
/// the recorded sizes. The number of entries where there are none.
size_t certain_from(const record::Tape& tape);

}  // namespace bolt::lower

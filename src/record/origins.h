// record/origins.h
// A tensor of a tape -> the inputs that it was computed from: what it holds is a function of theirs.
#pragma once

#include <optional>
#include <vector>

#include "record/tape.h"

namespace bolt::record {

/// Inputs of the tape; of an input, that one. Nothing: numbers that differ between calls, random ones or
/// memory that nothing filled are part of it too, something on the way was written to, or it took many
/// operators.
std::optional<std::vector<TensorId>> origins_of(const Tape& tape, TensorId tensor);

}  // namespace bolt::record

// record/copy.h
// A tape -> a copy of it, or of part of it. Entries of the copy lie where those of the tape do.
#pragma once

#include "record/tape.h"

namespace bolt::record {

/// Its tensors and lines, without inputs and entries; entries of it can be added.
inline Tape without_entries(const Tape& tape) {
  Tape copy;
  for (const TensorInfo& info : tape.tensors) copy.tensors.emplace_back() = info;
  copy.args = tape.args;
  copy.locs = tape.locs;
  return copy;
}

inline Tape copy_of(const Tape& tape) {
  Tape copy = without_entries(tape);
  copy.inputs = tape.inputs;
  copy.entries = tape.entries;
  return copy;
}

}  // namespace bolt::record

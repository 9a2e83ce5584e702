// record/copy.h
// A tape -> a copy of it, or of part of it. Entries of the copy lie where those of the tape do, and tensors
// keep their numbers.
#pragma once

#include <c10/util/strides.h>

#include <algorithm>
#include <vector>

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

// ---- a part, begun with nothing but the tensors

/// Without inputs and entries, and with nothing said of where tensors come from.
inline Tape tensors_alone(const Tape& tape) {
  Tape copy = without_entries(tape);
  for (size_t id = 0; id < copy.tensors.size(); ++id) copy.tensors[id].input = copy.tensors[id].producer = -1;
  return copy;
}

inline int count_storages(const Tape& tape) {
  int count = 0;
  for (const TensorInfo& info : tape.tensors) count = std::max(count, info.storage + 1);
  return count;
}

/// One more tensor, which lies in `storage` as `id` does in its own, and which no entry makes yet.
inline TensorId add_like(Tape& tape, TensorId id, int storage) {
  const TensorInfo like = tape.tensors[id];
  TensorInfo& added = tape.tensors.emplace_back();
  added = like;
  added.input = added.producer = -1;
  added.storage = storage;
  return static_cast<TensorId>(tape.tensors.size()) - 1;
}

/// One more tensor, with the sizes of `id` and memory of its own, row by row, which no entry makes yet.
inline TensorId add_contiguous(Tape& tape, TensorId id) {
  const TensorId added = add_like(tape, id, count_storages(tape));
  TensorInfo& info = tape.tensors[added];
  info.strides = Dims();
  for (int64_t stride : c10::contiguous_strides(info.sizes)) info.strides.push_back(stride);
  info.offset = 0;
  return added;
}

inline void add_input(Tape& tape, TensorId id) {
  tape.tensors[id].input = static_cast<int>(tape.inputs.size());
  tape.inputs.push_back(id);
}

/// What no other entry of the part gives, and is no input of it, this one makes.
inline void add_entry(Tape& tape, const Entry& entry) {
  const auto index = static_cast<int>(tape.entries.size());
  for_each_tensor(entry.results, [&](TensorId id) {
    TensorInfo& info = tape.tensors[id];
    if (info.input < 0 && info.producer < 0) info.producer = index;
  });
  tape.entries.push_back(entry);
}

/// Writes the tape anew: in the place of the entries at `places`, which are in order, `instead` adds others.
template <class Instead>
void replace_entries(Tape& tape, const std::vector<size_t>& places, Instead instead) {
  const Tape from = copy_of(tape);
  tape = tensors_alone(from);
  for (TensorId id : from.inputs) add_input(tape, id);
  auto next = places.begin();
  for (size_t i = 0; i < from.entries.size(); ++i) {
    if (next == places.end() || *next != i) {
      add_entry(tape, from.entries[i]);
      continue;
    }
    instead(from.entries[i]);
    ++next;
  }
}

}  // namespace bolt::record

// autograd/split.cpp: see split.h.
#include "autograd/split.h"

#include <algorithm>
#include <set>

#include "record/copy.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

const TensorInfo& info_of(const Tape& tape, TensorId id) { return tape.tensors[static_cast<size_t>(id)]; }

/// Is it there when the backward part begins?
bool is_of_forward(const Joint& joint, TensorId id) {
  const TensorInfo& info = info_of(joint.tape, id);
  if (info.input >= 0) return static_cast<size_t>(info.input) < joint.tangents;
  return static_cast<size_t>(info.producer) < joint.backward;
}

int64_t bytes_kept(const Joint& joint, const std::vector<TensorId>& kept) {
  const Tape& tape = joint.tape;
  std::set<int> storages;
  for (TensorId id : kept) storages.insert(info_of(tape, id).storage);
  for (size_t i = 0; i < joint.tangents; ++i) storages.erase(info_of(tape, tape.inputs[i]).storage);
  std::vector<int64_t> bytes;
  for (size_t id = 0; id < tape.tensors.size(); ++id) {
    const TensorInfo& info = tape.tensors[id];
    if (!storages.count(info.storage)) continue;
    bytes.resize(std::max(bytes.size(), static_cast<size_t>(info.storage) + 1));
    int64_t& known = bytes[static_cast<size_t>(info.storage)];
    known = std::max(known, static_cast<int64_t>(bytes_reached(info)));
  }
  int64_t sum = 0;
  for (int64_t each : bytes) sum += each;
  return sum;
}

void add_input(Tape& tape, TensorId id) {
  TensorInfo& info = tape.tensors[static_cast<size_t>(id)];
  info.input = static_cast<int>(tape.inputs.size());
  info.producer = -1;
  tape.inputs.push_back(id);
}

Tape forward_part(const Joint& joint) {
  Tape tape = record::without_entries(joint.tape);
  for (size_t i = 0; i < joint.tangents; ++i) add_input(tape, joint.tape.inputs[i]);
  const auto& entries = joint.tape.entries;
  tape.entries.assign(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(joint.backward));
  return tape;
}

Tape backward_part(const Joint& joint, const std::vector<TensorId>& kept) {
  Tape tape = record::without_entries(joint.tape);
  for (size_t id = 0; id < tape.tensors.size(); ++id) {
    TensorInfo& info = tape.tensors[id];
    info.input = -1;
    info.producer = std::max(-1, info.producer - static_cast<int>(joint.backward));
  }
  for (TensorId id : kept) add_input(tape, id);
  for (size_t i = joint.tangents; i < joint.tape.inputs.size(); ++i) add_input(tape, joint.tape.inputs[i]);
  const auto& entries = joint.tape.entries;
  tape.entries.assign(entries.begin() + static_cast<std::ptrdiff_t>(joint.backward), entries.end());
  return tape;
}

}  // namespace

Saved saved(const Joint& joint) {
  Saved result;
  std::set<TensorId> seen;
  auto read = [&](TensorId id) {
    if (id >= 0 && is_of_forward(joint, id) && seen.insert(id).second) result.tensors.push_back(id);
  };
  for (size_t i = joint.backward; i < joint.tape.entries.size(); ++i)
    for (const Arg& arg : joint.tape.entries[i].args)
      for (TensorId id : arg.tensors) read(id);
  for (TensorId id : joint.gradients) read(id);
  result.bytes = bytes_kept(joint, result.tensors);
  return result;
}

Split split(const Joint& joint) {
  Split parts;
  parts.saved = saved(joint).tensors;
  parts.forward = forward_part(joint);
  parts.backward = backward_part(joint, parts.saved);
  parts.outputs = joint.outputs;
  parts.gradients = joint.gradients;
  return parts;
}

}  // namespace bolt::autograd

// record/tape.cpp: see tape.h.
#include "record/tape.h"

#include <algorithm>
#include <utility>

#include "record/operator_facts.h"

namespace bolt::record {

bool elements_share_memory(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1) dims.emplace_back(strides[i], sizes[i]);
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (auto [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

const std::vector<int>& written_arguments(const Entry& entry) {
  const OperatorFacts& facts = *entry.facts;
  if (facts.written_in_training.empty()) return facts.written;
  const c10::IValue& training = entry.args[kTrainingArgument].value;
  return training.isBool() && training.toBool() ? facts.written_in_training : facts.written;
}

bool writes_gradients(const Tape& tape, const Entry& entry) {
  auto requires_grad = [&](TensorId id) {
    return id >= 0 && tape.tensors[static_cast<size_t>(id)].requires_grad;
  };
  auto any = [&](const Arg& arg) {
    return std::any_of(arg.tensors.begin(), arg.tensors.end(), requires_grad);
  };
  return entry.grad_mode && std::any_of(entry.args.begin(), entry.args.end(), any) &&
         !written_arguments(entry).empty();
}
bool needs_gradients(const Tape& tape) {
  for (const auto& t : tape.tensors)
    if (t.producer >= 0 && t.requires_grad && tape.entries[static_cast<size_t>(t.producer)].grad_mode)
      return true;
  return std::any_of(tape.entries.begin(), tape.entries.end(),
                     [&](const Entry& e) { return writes_gradients(tape, e); });
}

namespace {

/// Does it, or what it is a view of, count the writes to it by itself?
bool counts_apart(const Tape& tape, TensorId id) {
  while (id >= 0) {
    const TensorInfo& info = tape.tensors[static_cast<size_t>(id)];
    if (info.producer < 0) return false;
    const Entry& e = tape.entries[static_cast<size_t>(info.producer)];
    if (e.own_version) return true;
    TensorId shown = -1;
    for (const Arg& arg : e.args)
      for (TensorId t : arg.tensors)
        if (t >= 0 && t < id && tape.tensors[static_cast<size_t>(t)].storage == info.storage) shown = t;
    id = shown;
  }
  return false;
}

}  // namespace

bool is_written_apart(const Tape& tape, int storage) {
  bool any = false;
  for (const Entry& e : tape.entries)
    for (int argument : written_arguments(e))
      for (TensorId id : e.args[static_cast<size_t>(argument)].tensors) {
        if (id < 0 || tape.tensors[static_cast<size_t>(id)].storage != storage) continue;
        if (!counts_no_write(e) && !counts_apart(tape, id)) return false;
        any = true;
      }
  return any;
}

bool counts_no_write(const Entry& entry) { return !entry.facts->written_in_training.empty(); }

}  // namespace bolt::record

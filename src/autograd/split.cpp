// autograd/split.cpp
#include "autograd/split.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "autograd/flow.h"
#include "autograd/normalise_again.h"
#include "record/copy.h"

namespace bolt::autograd {
namespace {

using record::add_entry;
using record::add_input;
using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;
using record::tensors_alone;

const TensorInfo& info_of(const Tape& tape, TensorId id) { return tape.tensors[id]; }

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
    int64_t& known = bytes[info.storage];
    known = std::max(known, static_cast<int64_t>(bytes_reached(info)));
  }
  int64_t sum = 0;
  for (int64_t each : bytes) sum += each;
  return sum;
}

Tape forward_part(const Joint& joint, const Partition& partition) {
  Tape tape = tensors_alone(joint.tape);
  for (size_t i = 0; i < joint.tangents; ++i) add_input(tape, joint.tape.inputs[i]);
  for (int i : partition.forward) add_entry(tape, joint.tape.entries[i]);
  return tape;
}

class BackwardPart {
 public:
  BackwardPart(const Joint& joint, const Partition& partition) : tape_(tensors_alone(joint.tape)) {
    for (TensorId id : partition.kept) add_input(tape_, id);
    for (size_t i = joint.tangents; i < joint.tape.inputs.size(); ++i) add_input(tape_, joint.tape.inputs[i]);
    for (const TensorInfo& info : joint.tape.tensors) storages_ = std::max(storages_, info.storage + 1);
    for (TensorId id : partition.kept) kept_.insert(info_of(tape_, id).storage);
    for (int i : partition.backward) {
      const bool again = static_cast<size_t>(i) < joint.backward;
      const Entry& entry = joint.tape.entries[i];
      add_entry(tape_, again ? made_again(entry) : entry);
    }
  }

  Tape take() { return std::move(tape_); }

 private:
  Entry made_again(const Entry& entry) {
    auto is_kept = [&](TensorId id) { return kept_.count(info_of(tape_, id).storage) > 0; };
    if (may_be_normalised_again(tape_, entry, is_kept)) return normalised_again(tape_, entry);
    return beside_what_is_kept(without_statistics(entry));
  }

  Entry without_statistics(Entry entry) {
    if (!counts_statistics(entry)) return entry;
    const auto args = entry.args;
    entry.args = tape_.args->take(args.size());
    std::ranges::copy(args, entry.args.begin());
    for (size_t a : kStatistics) entry.args[a] = Arg();
    return entry;
  }

  /// Computed again for one of its results, an operator also gives those that are there: they get another
  /// number, and memory of their own.
  Entry beside_what_is_kept(Entry entry) {
    const auto results = entry.results;
    if (!makes_what_is_kept(entry)) return entry;
    entry.results = tape_.args->take(results.size());
    std::ranges::copy(results, entry.results.begin());
    std::map<int, int> renumbered;
    for (Arg& result : entry.results)
      for (TensorId& id : result.tensors)
        if (id >= 0 && kept_.count(info_of(tape_, id).storage)) id = copy_of(id, renumbered);
    return entry;
  }

  bool makes_what_is_kept(const Entry& entry) const {
    std::set<int> given;
    for_each_tensor(entry.args, [&](TensorId id) { given.insert(info_of(tape_, id).storage); });
    bool makes = false;
    for_each_tensor(entry.results, [&](TensorId id) {
      const int storage = info_of(tape_, id).storage;
      makes |= kept_.count(storage) && !given.count(storage);  // no view
    });
    return makes;
  }

  TensorId copy_of(TensorId id, std::map<int, int>& renumbered) {
    const TensorInfo info = info_of(tape_, id);
    const auto [at, is_new] = renumbered.try_emplace(info.storage, storages_);
    storages_ += is_new;
    TensorInfo& made = tape_.tensors.emplace_back();
    made = info;
    made.input = made.producer = -1;
    made.storage = at->second;
    return static_cast<TensorId>(tape_.tensors.size()) - 1;
  }

  Tape tape_;
  int storages_ = 0;
  std::set<int> kept_;  ///< storages
};

void collect_used(const Tape& tape, const std::vector<SizeFact>& facts, Syms* used) {
  for (const Entry& entry : tape.entries)
    for (const Arg& arg : entry.args)
      for (Sym s : arg.syms) collect_symbols(s, used);
  for (const SizeFact& fact : facts) collect_symbols(fact.b, used);
}

void tell_sizes_of_backward(const Joint& joint, Split& parts) {
  if (joint.symbols.empty()) return;
  const Tape& tape = parts.backward;
  parts.dynamic.dims.resize(tape.inputs.size());
  for (size_t i = 0; i < tape.inputs.size(); ++i) {
    const TensorId id = tape.inputs[i];
    const Syms& sizes = joint.sizes[id];
    for (size_t d = 0; d < sizes.size(); ++d) {
      const Sym here = tape_symbol(id, static_cast<int>(d));
      if (sizes[d].is_const()) continue;
      parts.dynamic.dims[i] |= uint64_t{1} << d;
      if (here != sizes[d])
        parts.facts.push_back({here, Relation::eq, sizes[d], "the forward part gives it so"});
    }
  }
  Syms used;
  collect_used(tape, parts.facts, &used);
  for (const SymbolRow& s : joint.symbols) {
    const int id = tensor_of_size(*s.symbol.node());
    const bool is_input = id >= 0 && info_of(tape, id).input >= 0;
    if (!is_input && std::ranges::find(used, s.symbol) != used.end()) parts.dynamic.numbers.push_back(s);
  }
}

}  // namespace

Saved saved(const Joint& joint) {
  Saved result;
  std::set<TensorId> seen;
  auto read = [&](TensorId id) {
    if (id >= 0 && is_of_forward(joint, id) && seen.insert(id).second) result.tensors.push_back(id);
  };
  for (size_t i = joint.backward; i < joint.tape.entries.size(); ++i)
    for_each_tensor(joint.tape.entries[i].args, read);
  for (TensorId id : joint.gradients) read(id);
  result.bytes = bytes_kept(joint, result.tensors);
  return result;
}

Split split(const Joint& joint, const Budget& budget) {
  Partition decided = partition(joint, budget);
  Split parts;
  parts.forward = forward_part(joint, decided);
  parts.backward = BackwardPart(joint, decided).take();
  parts.outputs = joint.outputs;
  parts.saved = std::move(decided.kept);
  parts.gradients = joint.gradients;
  parts.inputs_kept_anew = std::move(decided.inputs_kept_anew);
  tell_sizes_of_backward(joint, parts);
  return parts;
}

}  // namespace bolt::autograd

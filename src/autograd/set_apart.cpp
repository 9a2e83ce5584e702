// autograd/set_apart.cpp: see set_apart.h.
#include "autograd/set_apart.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <set>
#include <span>

#include "autograd/joint.h"
#include "record/copy.h"
#include "record/operator_facts.h"

namespace bolt::autograd {
namespace {

using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

class SettingApart {
 public:
  SettingApart(const Tape& tape, const std::vector<TensorId>& wanted,
               const std::unordered_map<int, at::Tensor>& constants)
      : run_(tape), wanted_(wanted), constants_(constants) {}

  SetApart make() {
    SetApart out;
    for (const size_t input : found()) out.inputs.push_back(input);
    if (out.inputs.empty()) return out;
    out.tape = record::tensors_alone(run_);
    for (TensorId id : run_.inputs) record::add_input(out.tape, id);
    out.wanted = wanted_;
    for (const size_t input : out.inputs) out.wanted.push_back(add_copy(out.tape, run_.inputs[input]));
    for (const Entry& entry : run_.entries) record::add_entry(out.tape, renamed(out.tape, entry));
    return out;
  }

 private:
  const TensorInfo& info(TensorId id) const { return run_.tensors[static_cast<size_t>(id)]; }

  std::vector<size_t> found() {
    std::set<int> candidates;
    for (const Entry& entry : run_.entries)
      if (entry.grad_mode && is_followed(entry))
        for (const auto& [result, argument] :
             entry.facts->handed_back)  // statistics of a norm get no history
          for (TensorId id : entry.args[static_cast<size_t>(argument)].tensors)
            if (id >= 0) candidates.insert(info(id).storage);
    std::vector<size_t> inputs;
    for (size_t i = 0; i < run_.inputs.size(); ++i)
      if (candidates.contains(info(run_.inputs[i]).storage) && can_be_apart(i)) inputs.push_back(i);
    return inputs;
  }

  bool is_followed(const Entry& entry) const {
    return std::ranges::any_of(entry.args, [&](const Arg& arg) {
      return std::ranges::any_of(arg.tensors, [&](TensorId id) { return id >= 0 && info(id).requires_grad; });
    });
  }

  bool can_be_apart(size_t input) const {
    const TensorId id = run_.inputs[input];
    const TensorInfo& t = info(id);
    if (!t.plain || t.zero || t.offset != 0 || constants_.contains(static_cast<int>(input))) return false;
    int64_t elements = 1;
    for (int64_t size : t.sizes) elements *= size;
    const bool fills = bytes_reached(t) == static_cast<size_t>(elements) * c10::elementSize(t.dtype) &&
                       !record::elements_share_memory(t.sizes, t.strides);
    auto shows_it = [&](TensorId other) {
      return other >= 0 && other != id && info(other).storage == t.storage;
    };
    return fills && std::ranges::none_of(run_.inputs, shows_it) && std::ranges::none_of(wanted_, shows_it) &&
           std::ranges::none_of(run_.entries, [&](const Entry& entry) {
             return holds(entry, id) &&
                    std::ranges::any_of(entry.args, [](const Arg& arg) { return !arg.syms.empty(); });
           });
  }

  static bool holds(const Entry& entry, TensorId id) {
    auto in = [&](std::span<const Arg> args) {
      return std::ranges::any_of(
          args, [&](const Arg& arg) { return std::ranges::find(arg.tensors, id) != arg.tensors.end(); });
    };
    return in(entry.args) || in(entry.results);
  }

  /// The tensors that showed the input show its copy.
  TensorId add_copy(Tape& tape, TensorId input) {
    static const c10::OperatorHandle clone =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
    int storage = 0;
    for (const TensorInfo& t : tape.tensors) storage = std::max(storage, t.storage + 1);
    for (size_t id = 0; id < tape.tensors.size(); ++id)
      if (static_cast<TensorId>(id) != input && tape.tensors[id].storage == info(input).storage)
        tape.tensors[id].storage = storage;
    const auto made = static_cast<TensorId>(tape.tensors.size());
    const TensorInfo as = info(input);
    TensorInfo& copy = tape.tensors.emplace_back();
    copy = as;
    copy.input = copy.producer = -1;
    copy.storage = storage;
    copies_[input] = made;
    Entry entry{clone, &record::facts_of(clone), tape.args->take(2), tape.args->take(1)};
    entry.args[0].kind = entry.results[0].kind = Arg::Kind::Tensor;
    entry.args[0].tensors = {input};
    entry.results[0].tensors = {made};
    entry.loc = run_.entries.front().loc;
    record::add_entry(tape, entry);
    return made;
  }

  /// Entries share their arguments with those of the run, where they need none of their own: what is said of
  /// numbers there later is said of both.
  Entry renamed(Tape& tape, const Entry& entry) const {
    Entry made = entry;
    if (std::ranges::none_of(copies_, [&](const auto& copy) { return holds(entry, copy.first); }))
      return made;
    auto rename = [&](std::span<Arg> args) {
      const std::span<Arg> own = tape.args->take(args.size());
      std::ranges::copy(args, own.begin());
      for (Arg& arg : own)
        for (TensorId& id : arg.tensors)
          if (const auto at = copies_.find(id); at != copies_.end()) id = at->second;
      return own;
    };
    made.args = rename(entry.args);
    made.results = rename(entry.results);
    return made;
  }

  const Tape& run_;
  const std::vector<TensorId>& wanted_;
  const std::unordered_map<int, at::Tensor>& constants_;
  std::unordered_map<TensorId, TensorId> copies_;  ///< of inputs
};

}  // namespace

SetApart set_apart(const Tape& tape, const std::vector<TensorId>& wanted,
                   const std::unordered_map<int, at::Tensor>& constants) {
  return SettingApart(tape, wanted, constants).make();
}

}  // namespace bolt::autograd

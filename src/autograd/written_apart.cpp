// autograd/written_apart.cpp
#include "autograd/written_apart.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "autograd/joint.h"
#include "autograd/work.h"
#include "record/copy.h"
#include "record/make_entry.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::TensorId;
using record::TensorInfo;

/// The operator that gives what this one writes to the only tensor that it is given.
std::optional<c10::OperatorHandle> elsewhere(const Entry& entry, TensorId written) {
  const auto& name = entry.op.operator_name();
  if (record::written_arguments(entry) != std::vector<int>{0} || entry.results.size() != 1 ||
      entry.results[0].tensors != record::TensorIds{written} || !name.name.ends_with('_') ||
      !fuses(work_of(entry)))
    return std::nullopt;
  int operands = 0;
  for_each_tensor(entry.args, [&](TensorId) { ++operands; });
  if (operands != 1) return std::nullopt;
  auto found = c10::Dispatcher::singleton().findSchema(
      {name.name.substr(0, name.name.size() - 1), name.overload_name});
  if (!found || found->schema().is_mutable() || found->schema().returns().size() != 1 ||
      found->schema().arguments().size() != entry.args.size())
    return std::nullopt;
  return found;
}

class WritingApart {
 public:
  WritingApart(record::Tape& tape, std::vector<Syms>& sizes) : tape_(tape), sizes_(sizes) {}

  void run() {
    const auto is_copy = [](const Entry& entry) { return entry.op.operator_name().name == "aten::clone"; };
    if (std::ranges::none_of(tape_.entries, is_copy)) return;
    touching_.resize(static_cast<size_t>(record::count_storages(tape_)));
    for (size_t i = 0; i < tape_.entries.size(); ++i) {
      const Entry& entry = tape_.entries[i];
      for (const auto& tensors : {entry.args, entry.results})
        for_each_tensor(tensors, [&](TensorId id) {
          auto& all = touching_[info(id).storage];
          if (all.empty() || all.back() != i) all.push_back(i);
        });
    }
    for (size_t i = 0; i < tape_.entries.size(); ++i)
      if (is_copy(tape_.entries[i])) look_at(i);
  }

 private:
  const TensorInfo& info(TensorId id) const { return tape_.tensors[id]; }

  void look_at(size_t copied) {
    const TensorId from = tape_.entries[copied].args[0].tensors[0];
    const TensorId copy = tape_.entries[copied].results[0].tensors[0];
    if (!lies_alike(from, copy)) return;
    const auto& all = touching_[info(from).storage];
    const auto at = std::ranges::find(all, copied), written = at == all.end() ? at : at + 1;
    if (written == all.end() || static_cast<int>(all.front()) != info(from).producer || writes_any(copy))
      return;
    for (auto i = all.begin(); i != written; ++i)
      if (writes(*i, from) || shows_otherwise(*i, from)) return;
    if (const auto op = elsewhere(tape_.entries[*written], from)) part(copied, *written, from, *op);
  }

  /// In memory of its own, all of which it fills: what is made of it element by element lies so, too.
  bool lies_alike(TensorId from, TensorId copy) const {
    const TensorInfo &a = info(from), &b = info(copy);
    return a.input < 0 && a.plain && b.plain && c10::isFloatingType(a.dtype) && a.dtype == b.dtype &&
           a.sizes == b.sizes && a.strides == b.strides && b.offset == 0 && fills_its_memory(a);
  }

  bool shares_memory(TensorId a, TensorId b) const { return info(a).storage == info(b).storage; }
  bool shows_otherwise(size_t i, TensorId of) const {
    const auto other = [&](TensorId id) { return id != of && shares_memory(id, of); };
    return any_tensor(tape_.entries[i].args, other) || any_tensor(tape_.entries[i].results, other);
  }
  bool writes(size_t i, TensorId to) const {
    return any_written(tape_.entries[i], [&](TensorId id) { return id >= 0 && shares_memory(id, to); });
  }
  bool writes_any(TensorId to) const {
    return std::ranges::any_of(touching_[info(to).storage], [&](size_t i) { return writes(i, to); });
  }

  void part(size_t copied, size_t written, TensorId from, const c10::OperatorHandle& op) {
    const auto storage = static_cast<int>(touching_.size());
    const TensorId before = record::add_like(tape_, from, storage);
    if (!sizes_.empty()) sizes_.push_back(Syms(sizes_[from]));
    tape_.tensors[before].producer = info(from).producer;
    tape_.tensors[from].producer = static_cast<int>(written);
    const TensorId copy = tape_.entries[copied].results[0].tensors[0];
    std::vector<size_t> early = std::exchange(touching_[info(copy).storage], {});
    tape_.tensors[copy].storage = storage;
    auto& all = touching_[info(from).storage];
    const auto late = std::ranges::find(all, written);
    for (auto i = all.begin(); i != late; ++i) rename(tape_.entries[*i], from, before);
    early.insert(early.end(), all.begin(), late + 1);
    std::ranges::sort(early);
    all.erase(all.begin(), late);
    touching_.push_back(std::move(early));
    tape_.entries[copied] = record::make_entry(tape_, "aten::alias", "", {record::tensor_arg(before)}, {copy},
                                               tape_.entries[copied].loc);
    Entry& entry = tape_.entries[written];
    entry.args = renamed(entry.args, from, before);
    entry.op = op;
    entry.facts = &record::facts_of(op);
  }

  void rename(Entry& entry, TensorId from, TensorId to) {
    entry.args = renamed(entry.args, from, to);
    entry.results = renamed(entry.results, from, to);
  }
  /// Others may have the same ones.
  std::span<record::Arg> renamed(std::span<record::Arg> args, TensorId from, TensorId to) {
    if (!any_tensor(args, [&](TensorId id) { return id == from; })) return args;
    const std::span<record::Arg> copy = tape_.args->take(args.size());
    std::ranges::copy(args, copy.begin());
    for (record::Arg& arg : copy)
      for (TensorId& id : arg.tensors)
        if (id == from) id = to;
    return copy;
  }

  record::Tape& tape_;
  std::vector<Syms>& sizes_;
  std::vector<std::vector<size_t>> touching_;  ///< by storage: entries, in order, that read or give any of it
};

}  // namespace

void write_apart(record::Tape& tape, std::vector<Syms>& sizes) { WritingApart(tape, sizes).run(); }

}  // namespace bolt::autograd

// lower/attention_masks.cpp
#include "lower/attention_masks.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/passes/passes.h"
#include "lower/functionalize.h"
#include "record/copy.h"
#include "record/operator_facts.h"
#include "record/unary.h"
#include "support/error.h"

namespace bolt::lower {
namespace {

using graph::MaskHides;
using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;

/// Where among an attention's arguments: (query, key, value, mask, dropout, causal, ...)
constexpr size_t kMask = 3, kCausal = 5;

const TensorInfo& info_of(const Tape& tape, TensorId id) { return tape.tensors[id]; }

/// -1: it is no attention, or one without a mask.
TensorId mask_of(const Entry& entry) {
  static const c10::OperatorHandle attention =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::scaled_dot_product_attention", "");
  if (!(entry.op == attention) || entry.args[kMask].kind != Arg::Kind::Tensor) return -1;
  return entry.args[kCausal].value.toBool() ? -1 : entry.args[kMask].tensors[0];
}

Arg tensor(TensorId id) {
  Arg arg;
  arg.kind = Arg::Kind::Tensor;
  arg.tensors.push_back(id);
  return arg;
}

/// `like`: says the line and the mode.
void add_clone(Tape& tape, const Entry& like, TensorId from, TensorId to) {
  Entry& entry =
      tape.entries.emplace_back(record::clone(tape, from, to, like.loc, at::MemoryFormat::Contiguous));
  entry.grad_mode = like.grad_mode;
  entry.inference_mode = like.inference_mode;
}

/// The entries that make a tensor, and nothing else.
class Making {
 public:
  explicit Making(const Tape& tape) : tape_(tape) {}

  void add(TensorId id) {
    storages_.insert(info_of(tape_, id).storage);
    const int producer = info_of(tape_, id).producer;
    if (producer < 0 || !entries_.insert(producer).second) return;
    for_each_tensor(tape_.entries[producer].args, [&](TensorId from) { add(from); });
  }

  /// Does the run write to any memory that takes part? Then the order of all entries counts.
  bool is_written() const {
    return std::ranges::any_of(tape_.entries, [&](const Entry& entry) {
      return any_written(entry, [&](TensorId id) { return storages_.contains(info_of(tape_, id).storage); });
    });
  }

  Tape alone() const {
    Tape part = record::without_entries(tape_);
    part.inputs = tape_.inputs;
    std::map<int, int> places;
    for (const int i : entries_) {
      places[i] = static_cast<int>(part.entries.size());
      part.entries.push_back(tape_.entries[i]);
    }
    for (TensorInfo& info : part.tensors) {
      const auto at = places.find(info.producer);
      info.producer = at == places.end() ? -1 : at->second;
    }
    return part;
  }

 private:
  const Tape& tape_;
  std::set<int> entries_;
  std::set<int> storages_;
};

/// Of the mask of this attention. It may be a view, which the graph would leave to whoever runs it: what is
/// looked at is a copy. What holds for some sizes only is something.
MaskHides hides(const Tape& tape, const Entry& attention, TensorId mask, Sizes& sizes) {
  Making making(tape);
  making.add(mask);
  if (making.is_written()) return MaskHides::Something;
  Tape alone = making.alone();
  const TensorId copy = record::add_contiguous(alone, mask);
  alone.tensors[copy].producer = static_cast<int>(alone.entries.size());
  add_clone(alone, attention, mask, copy);
  const std::vector<SizeFact> known = sizes.facts();
  try {
    const Lowered lowered = functionalize(alone, {copy}, {std::vector<bool>(tape.inputs.size()), {}}, sizes);
    const bool for_all_sizes = std::ranges::all_of(
        sizes.facts(), [&](const SizeFact& fact) { return std::ranges::find(known, fact) != known.end(); });
    return for_all_sizes ? graph::what_mask_hides(lowered.graph->outputs[0].value) : MaskHides::Something;
  } catch (const SizeDemand&) {
    return MaskHides::Something;
  } catch (const Unsupported&) {
    return MaskHides::Something;
  }
}

/// Entries are copied one after another, with more of them between.
class Rewriting {
 public:
  explicit Rewriting(const Tape& tape) : from_(tape), to_(record::without_entries(tape)) {
    to_.inputs = tape.inputs;
  }

  void copy(const Entry& entry) {
    moved_.push_back(static_cast<int>(to_.entries.size()));
    to_.entries.push_back(entry);
  }

  /// The attention without its mask, whose result is a new tensor, and what is brought into order of that.
  void unmasked(const Entry& entry, MaskHides hides) {
    const TensorId recorded = entry.results[0].tensors[0];
    const bool in_order = is_contiguous(info_of(from_, recorded));
    const TensorId result = in_order ? add_contiguous(to_, recorded) : recorded;
    if (!in_order) moved_.push_back(static_cast<int>(to_.entries.size()));
    Entry& bare = to_.entries.emplace_back(entry);
    bare.args = to_.args->take(entry.args.size());
    std::ranges::copy(entry.args, bare.args.begin());
    bare.args[kMask] = Arg();
    bare.args[kCausal].value = hides == MaskHides::WhatLiesAhead;
    bare.results = to_.args->take(1);
    bare.results[0] = tensor(result);
    if (in_order) put_in_order(entry, result, recorded);
  }

  Tape take() {
    for (TensorInfo& info : to_.tensors)
      if (info.producer >= 0) info.producer = moved_[info.producer];
    return std::move(to_);
  }

 private:
  static bool is_contiguous(const TensorInfo& info) {
    const c10::DimVector strides = c10::contiguous_strides(info.sizes);
    return std::ranges::equal(info.strides, strides);
  }
  void put_in_order(const Entry& attention, TensorId from, TensorId to) {
    moved_.push_back(static_cast<int>(to_.entries.size()));
    add_clone(to_, attention, from, to);
  }

  const Tape& from_;
  Tape to_;
  std::vector<int> moved_;  ///< by entry of the run: where what makes its results is
};

}  // namespace

std::optional<Tape> without_masks(const Tape& tape, Sizes& sizes) {
  std::map<TensorId, MaskHides> known;
  bool any = false;
  for (const Entry& entry : tape.entries) {
    const TensorId mask = mask_of(entry);
    if (mask < 0 || known.contains(mask)) continue;
    known[mask] = hides(tape, entry, mask, sizes);
    any |= known[mask] != MaskHides::Something;
  }
  if (!any) return std::nullopt;
  Rewriting made(tape);
  for (const Entry& entry : tape.entries) {
    const auto at = known.find(mask_of(entry));
    if (at == known.end() || at->second == MaskHides::Something)
      made.copy(entry);
    else
      made.unmasked(entry, at->second);
  }
  return made.take();
}

}  // namespace bolt::lower

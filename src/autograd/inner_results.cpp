// autograd/inner_results.cpp
#include "autograd/inner_results.h"

#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <optional>

#include "record/copy.h"
#include "record/unary.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::Tape;
using record::TensorId;

bool lie_alike(const record::TensorInfo& info, at::IntArrayRef strides) {
  for (size_t d = 0; d < info.sizes.size(); ++d)
    if (info.sizes[d] > 1 && info.strides[d] != strides[d]) return false;
  return true;
}

/// In which a copy of the one lies as the other does; nothing: in the one's own. Views of it rest on that.
std::optional<at::MemoryFormat> format_for(const record::TensorInfo& from, const record::TensorInfo& to) {
  if (lie_alike(from, to.strides)) return std::nullopt;
  if (lie_alike(to, c10::contiguous_strides(to.sizes))) return at::MemoryFormat::Contiguous;
  if (to.sizes.size() == 4 && lie_alike(to, c10::get_channels_last_strides_2d(to.sizes)))
    return at::MemoryFormat::ChannelsLast;
  throw_unsupported("a result that others are made of, and that lies in an order of its own");
}

/// The tensor that the entry makes is another one: lowering knows a copy for what was copied.
Entry copied(const Tape& tape, const Entry& entry, TensorId from) {
  const auto info = [&](TensorId id) -> const record::TensorInfo& { return tape.tensors[id]; };
  const TensorId made = entry.results[0].tensors[0];
  return record::clone(tape, from, made, entry.loc, format_for(info(from), info(made)));
}

}  // namespace

Tape with_inner(const Tape& backward, size_t tangents, const std::vector<Inner>& inner,
                const std::vector<Arrives>& ways) {
  Tape out = record::tensors_alone(backward);
  for (TensorId id : backward.inputs) record::add_input(out, id);
  const size_t first = backward.inputs.size() - tangents;
  for (size_t i = 0; i < backward.entries.size(); ++i) {
    const Entry& entry = backward.entries[i];
    auto sums = [&](const Inner& it) { return backward.tensors[it.whole].producer == static_cast<int>(i); };
    const auto at = std::ranges::find_if(inner, sums);
    const Arrives way = at == inner.end() ? Arrives::both : ways[at - inner.begin()];
    if (way == Arrives::both)
      record::add_entry(out, entry);
    else
      record::add_entry(
          out,
          copied(out, entry, way == Arrives::through ? at->through : backward.inputs[first + at->tangent]));
  }
  return out;
}

}  // namespace bolt::autograd

// lower/entry_lowering.cpp
#include "lower/entry_lowering.h"

#include <algorithm>

#include "loops/kernel_ops.h"
#include "lower/entry_facts.h"
#include "lower/round_once.h"
#include "record/convert.h"
#include "record/operator_facts.h"
#include "support/error.h"

namespace bolt::lower {
namespace {

using graph::Type;
using record::Arg;
using record::Entry;
using record::TensorId;
using record::TensorInfo;

/// What the call writes to, one for each tensor among its arguments that is written, given or not.
record::TensorIds written_tensors(const Entry& e) {
  record::TensorIds out;
  for (int w : written_arguments(e)) {
    const record::TensorIds& ids = e.args[w].tensors;
    if (ids.empty()) out.push_back(-1);
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

// The row of add for add_, with the same overload.
const Lowering* functional_row(const Entry& e) {
  auto it = lowerings().find(functional_name(e.op.operator_name()));
  return it != lowerings().end() && it->second.build ? &it->second : nullptr;
}

}  // namespace

EntryLowering::EntryLowering(Windows& windows, const std::vector<TensorId>& wanted)
    : w_(windows), wanted_(wanted), extern_(windows) {}

const EntryLowering::Seen& EntryLowering::seen() {
  if (seen_) return *seen_;
  Seen& seen = seen_.emplace();
  for (const Entry& e : w_.tape.entries)
    for_each_written(e, [&](TensorId id) { seen.written.insert(w_.tape.tensors[id].storage); });
  seen.given_out.insert(wanted_.begin(), wanted_.end());
  for (auto e = w_.tape.entries.rbegin(); e != w_.tape.entries.rend(); ++e)
    for_each_tensor(e->results, [&](TensorId view) {
      if (!seen.given_out.contains(view)) return;
      for_each_tensor(e->args, [&](TensorId id) {
        if (w_.tape.tensors[id].storage == w_.tape.tensors[view].storage) seen.given_out.insert(id);
      });
    });
  return seen;
}

void EntryLowering::lower(const Entry& e) {
  const record::TensorIds ids = results(e);
  if (std::all_of(ids.begin(), ids.end(), [&](TensorId r) { return r < 0 || w_.is_known(r); }) &&
      written_arguments(e).empty() && !ids.empty() && !has_effects(e))
    return;  // gave back what it was given (contiguous, to, dropout in eval mode)
  if (e.facts->waits) return extern_.wait(e);
  if (lower_zeros(ids)) return;
  if (const Lowering* row = row_of(e); row && lower_by_row(e, *row)) return;
  if (auto row = functional_row(e)) {
    if (lower_in_place(e, *row)) return;
  }
  extern_.lower(e);
  if (e.facts->turns) became(first_tensor(e), ids[0], e);
}

/// Null: it has none. A tape calls the same operators many times.
const Lowering* EntryLowering::row_of(const Entry& e) {
  if (const auto* known = rows_.find(e.facts)) return *known;
  const auto at = lowerings().find(full_name(e));
  return rows_[e.facts] = at == lowerings().end() ? nullptr : &at->second;
}

/// Where eager knew that the results are zeros, they are, whatever the operands hold.
bool EntryLowering::lower_zeros(const record::TensorIds& ids) {
  auto is_zero = [&](TensorId id) { return id >= 0 && w_.tape.tensors[id].zero; };
  if (std::none_of(ids.begin(), ids.end(), is_zero)) return false;
  for (TensorId id : ids) {
    const TensorInfo& info = w_.tape.tensors[id];
    const auto dtype = record::to_bolt(info.dtype);
    if (!is_zero(id) || !dtype || is_opaque(loops::moved_as(*dtype)))
      throw_unsupported("zeros without memory");
    if (w_.is_known(id)) continue;
    const Syms sizes(info.sizes.begin(), info.sizes.end());
    Value* zeros =
        w_.make(Op::full, {}, {{"value", number_as(0, *dtype)}, {"dtype", *dtype}, {"sizes", sizes}});
    zeros->type.device = record::to_bolt(info.device);
    w_.define_root(id, zeros);
  }
  return true;
}

/// What the row makes of the call. Nothing: it stays one call of ATen, also where the row must know a size
/// and that call need not. (Of two sizes that must agree there is nothing to gain.)
std::vector<Value*> EntryLowering::built(const Entry& e, const Lowering& row, Call& c) {
  try {
    if (!w_.rounds_as_eager()) return row.build(c);
    if (rounds_on_its_way(c)) return {};
    const auto& nodes = w_.out.graph->nodes;
    const graph::Node* last = nodes.empty() ? nullptr : nodes.back().get();
    auto values = row.build(c);
    round_once(*w_.out.graph, last, values);
    return values;
  } catch (const SizeDemand& demand) {
    if (demand.equal || w_.sizes.asks_early(demand) || is_view(e, w_.tape) || !extern_.knows_sizes(e, c))
      throw;
    return {};
  } catch (const DataDemand&) {
    if (is_view(e, w_.tape)) throw;
    return {};
  }
}

bool EntryLowering::lower_by_row(const Entry& e, const Lowering& row) {
  if (!is_compilable(e, w_.tape, row.moves || row.view)) return false;
  Call c = extern_.call(e);
  if (row.view) return first_tensor(e) < 0 ? lower_number(e, c) : lower_view(e, row, c);
  const record::TensorIds ids = results(e);
  auto values = built(e, row, c);
  if (values.empty()) return false;
  const record::TensorIds written = written_tensors(e);
  BOLT_CHECK(values.size() == ids.size() + written.size(), "the row of ", c.name(), " gave ", values.size(),
             " values, not ", ids.size() + written.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || w_.is_known(ids[i])) continue;
    check_shape(c, values[i], ids[i]);
    w_.define_root(ids[i], values[i]);
  }
  for (size_t i = 0; i < written.size(); ++i)
    if (Value* v = values[ids.size() + i]; v && written[i] >= 0) w_.write(written[i], fitted(v, written[i]));
  return true;
}

/// Whoever only reads what a reshape gives sees the same values in a copy as in a view.
void EntryLowering::pin_reshape(const Lowering& row, const Call& c, TensorId parent, TensorId result,
                                const ViewStep& step) {
  if (w_.sizes.are_numbers()) return;  // they are as they were
  const int from = w_.tape.tensors[parent].storage, to = w_.tape.tensors[result].storage;
  if (!row.copies || seen().written.contains(from) || seen().written.contains(to) ||
      seen().given_out.contains(result) || !w_.lies_in_order(parent))
    w_.pin_reshape(c, parent, std::get<Syms>(step.attrs.find("sizes")->second));
}

/// x.to("cuda"), x.cpu(): a copy that only the library makes.
bool EntryLowering::changes_device(const Entry& e) const {
  const c10::Device from = w_.tape.tensors[first_tensor(e)].device;
  for (TensorId id : results(e))
    if (id >= 0 && w_.tape.tensors[id].device != from) return true;
  return false;
}

/// x.mH, of complex numbers: no steps say so. Only a copy loses the note, since values are what is seen.
bool EntryLowering::changes_notes(const Entry& e) const {
  const TensorInfo& from = w_.tape.tensors[first_tensor(e)];
  for (TensorId id : results(e)) {
    if (id < 0) continue;
    const TensorInfo& to = w_.tape.tensors[id];
    if (to.storage == from.storage && (to.conjugated != from.conjugated || to.negated != from.negated))
      return true;
  }
  return false;
}

bool EntryLowering::lower_view(const Entry& e, const Lowering& row, Call& c) {
  auto steps = row.view(c);
  if (!steps || changes_device(e) || changes_notes(e)) return false;
  const record::TensorIds ids = results(e);
  const Arg& first = e.args[0];
  const bool each = first.kind == Arg::Kind::TensorList && first.tensors.size() == ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || w_.is_known(ids[i])) continue;
    const TensorId parent = each ? first.tensors[i] : first_tensor(e);
    const TensorInfo& info = w_.tape.tensors[ids[i]];
    const bool reshapes = !(*steps)[i].empty() && (*steps)[i].front().op == Op::reshape;
    if (reshapes) pin_reshape(row, c, parent, ids[i], (*steps)[i].front());
    // The run has shown whether this was a view or a copy (reshape, to, contiguous are either).
    if (info.storage == w_.tape.tensors[parent].storage) {
      w_.define_view(ids[i], parent, (*steps)[i], row.detaches);
      became(parent, ids[i], e);
      continue;
    }
    if (!reshapes)
      w_.pin_reshape(c, parent, {product(w_.sizes_of(parent))});  // it was not one run (contiguous)
    Value* copy = w_.apply((*steps)[i], w_.read(parent));
    const auto dtype = record::to_bolt(info.dtype);  // it may change on the way (to)
    if (!dtype) throw_unsupported("element type ", c10::toString(info.dtype));
    w_.define_root(ids[i], w_.converted(copy, *dtype));
  }
  return true;
}

/// A number as a tensor of some element type: the transforms of torch.func convert the numbers they meet.
bool EntryLowering::lower_number(const Entry& e, const Call& c) {
  const auto ids = results(e);
  const bool converts = ids.size() == 1 && ids[0] >= 0 && w_.tape.tensors[ids[0]].sizes.empty();
  const auto dtype = converts ? record::to_bolt(w_.tape.tensors[ids[0]].dtype) : std::nullopt;
  if (!dtype) return false;
  w_.define_root(ids[0], c.operand("self", *dtype));
  return true;
}

void EntryLowering::check_shape(const Call& c, Value* v, TensorId id) const {
  const TensorInfo& want = w_.tape.tensors[id];
  bool same = v->type.sizes.size() == want.sizes.size() && v->type.dtype == *record::to_bolt(want.dtype);
  for (size_t d = 0; same && d < want.sizes.size(); ++d)
    same = w_.sizes.hint(v->type.sizes[d]) == want.sizes[d];
  BOLT_CHECK(same, "the row of ", c.name(), " gave ", v->type.str(), " where eager gave ",
             c10::toString(want.dtype), at::IntArrayRef(want.sizes));
}

bool EntryLowering::lower_in_place(const Entry& e, const Lowering& row) {
  auto written = written_arguments(e);
  if (written.size() != 1 || written[0] != 0 || e.args[0].kind != Arg::Kind::Tensor) return false;
  TensorId self = e.args[0].tensors[0];
  auto ids = results(e);
  if (ids.size() != 1 || ids[0] != self) return false;  // changed its own geometry (unsqueeze_)
  if (!is_compilable(e, w_.tape, row.moves)) return false;
  Call c = extern_.call(e);
  auto values = built(e, row, c);
  if (values.size() != 1) return false;
  w_.write(self, fitted(values[0], self));
  return true;
}

// What an in-place operator stores: cast to the destination's dtype and broadcast to its sizes.
Value* EntryLowering::fitted(Value* v, TensorId id) {
  const Type want = w_.type_of(id);
  v = w_.converted(v, want.dtype);
  return v->type.sizes == want.sizes ? v : w_.make(Op::expand, {v}, {{"sizes", want.sizes}});
}

/// An in-place view operator: from now on the object of `before` is what `after` describes.
void EntryLowering::became(TensorId before, TensorId after, const Entry& e) {
  if (written_arguments(e).empty()) return;
  auto [object, first] = object_of_.try_emplace(before, before);
  now_[object->second] = after;
  object_of_[after] = object->second;
}

}  // namespace bolt::lower

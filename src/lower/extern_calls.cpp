// lower/extern_calls.cpp
#include "lower/extern_calls.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "lower/data_sizes.h"
#include "lower/entry_facts.h"
#include "lower/extern_sizes.h"
#include "lower/probe.h"
#include "record/operator_facts.h"
#include "support/error.h"

namespace bolt::lower {
namespace {

using graph::Type;
using record::Arg;
using record::Entry;
using record::TensorId;

// as_strided reads the storage wherever its tensor lies there; only those of inputs are eager's. A view
// without elements lies nowhere once the passes have been over it.
bool lies_in_input(const Value* v) {
  if (v->def && v->type.numel().is_const(0)) return false;
  while (v->def && (v->def->op == Op::slice || v->def->op == Op::permute)) v = v->def->operands[0];
  return !v->def;
}

/// Results that become values of the call's node: -1 is no tensor at all (weights that nobody asked an
/// attention for).
record::TensorIds made_by(const Entry& e) {
  record::TensorIds made = results(e);
  erase_if(made, [](TensorId id) { return id < 0; });
  return made;
}

/// Dimensions as they lie in memory.
std::vector<int> outermost_first(const record::TensorInfo& t) {
  std::vector<int> order(t.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return t.strides[a] > t.strides[b]; });
  return order;
}

/// These; nothing: it has gaps, or a place twice.
std::optional<std::vector<int>> order_in_memory(const record::TensorInfo& t) {
  std::vector<int> order = outermost_first(t);
  int64_t run = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t size = t.sizes[order[i]];
    if (size > 1 && t.strides[order[i]] != run) return std::nullopt;
    run *= std::max<int64_t>(size, 1);
  }
  return order;
}

/// As a clone lies of what was recorded so: without gaps.
Syms dense_strides(const record::TensorInfo& t, const Syms& sizes) {
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (t.strides[d] == 0 && t.sizes[d] > 1) return graph::contiguous_strides(sizes);
  return graph::strides_in_order(sizes, outermost_first(t));
}

std::optional<c10::OperatorHandle> find_operator(const std::string& name, const char* overload) {
  return c10::Dispatcher::singleton().findSchema({name, overload});
}

/// A view that shows all of its base -> what gives the base of what was written to it.
std::optional<c10::OperatorHandle> whole_inverse_of(const c10::OperatorHandle& view) {
  const std::string& name = view.operator_name().name;
  if (name == "aten::view_as_real") return find_operator("aten::view_as_complex_copy", "");
  if (name == "aten::view_as_complex") return find_operator("aten::view_as_real_copy", "");
  return std::nullopt;
}

/// A view -> what gives its base after something was written to it: the same arguments behind what was.
std::optional<c10::OperatorHandle> inverse_of(const c10::OperatorHandle& view) {
  const std::string name = c10::toString(view.operator_name());
  if (name == "aten::slice.Tensor") return find_operator("aten::slice_scatter", "");
  if (name == "aten::select.int") return find_operator("aten::select_scatter", "");
  if (name == "aten::diagonal") return find_operator("aten::diagonal_scatter", "");
  return std::nullopt;
}

/// x.transpose_() -> the operator that gives such a view and leaves x as it is.
std::optional<c10::OperatorHandle> without_turning(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  if (!name.ends_with('_')) return std::nullopt;
  const std::string functional = name.substr(0, name.size() - 1);
  if (auto found = find_operator(functional, overload.c_str())) return found;
  return find_operator(functional, "int");  // transpose_
}

/// Do two tensors lie apart, as far as the recorded run tells?
bool lie_apart(TensorId a, TensorId b, const record::Tape& tape) {
  const record::TensorInfo &x = tape.tensors[a], &y = tape.tensors[b];
  if (x.storage != y.storage) return true;
  auto reach = [](const record::TensorInfo& t) {
    int64_t last = t.offset;
    for (size_t d = 0; d < t.sizes.size(); ++d) last += (t.sizes[d] - 1) * t.strides[d];
    return last;
  };
  return x.dtype == y.dtype && (reach(x) < y.offset || reach(y) < x.offset);
}

}  // namespace

/// What is written is given as copies, each by itself: an operator that writes the same place twice, or reads
/// it too, would not see what it wrote. (Where ATen's own read it they read it first, or refuse.)
void ExternCalls::check_overlaps(const Entry& e, const Call& c) const {
  const auto& written = written_arguments(e);
  const bool atens = record::is_atens(e.op);
  std::vector<std::pair<TensorId, bool>> all;  // and whether it is written
  for (size_t a = 0; a < e.args.size(); ++a)
    for (TensorId id : e.args[a].tensors)
      if (id >= 0)
        all.emplace_back(id, std::find(written.begin(), written.end(), static_cast<int>(a)) != written.end());
  // Where sizes differ between calls, so may places.
  auto apart = [&](TensorId a, TensorId b) {
    return w_.tape.tensors[a].storage != w_.tape.tensors[b].storage ||
           (c.is_static() && lie_apart(a, b, w_.tape));
  };
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      const bool matters = atens ? all[i].second && all[k].second : all[i].second || all[k].second;
      if (matters && !apart(all[i].first, all[k].first))
        throw_unsupported("an operator that is given memory twice and writes it");
    }
}

Call ExternCalls::call(const Entry& e) {
  std::vector<Call::Values> values(e.args.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i].reserve(e.args[i].tensors.size());
    for (TensorId id : e.args[i].tensors) values[i].push_back(id < 0 ? nullptr : w_.read(id));
  }
  return Call(*w_.out.graph, w_.tape, e, w_.loc, std::move(values), w_.sizes, w_.rounds_as_eager());
}

const std::optional<std::vector<Syms>>& ExternCalls::probed(const Entry& e) {
  auto resolve = [&](Sym s) { return w_.sizes.resolve(s); };
  auto sizes_of = [&](TensorId id) { return w_.read(id)->type.sizes; };
  std::string key = std::to_string(&e - w_.tape.entries.data());
  for (const Arg& a : e.args) {
    for (TensorId id : a.tensors)
      if (id >= 0)
        for (Sym s : sizes_of(id)) key += ' ' + s.str();
    for (Sym s : a.syms) key += ' ' + resolve(s).str();
  }
  auto [at, fresh] = w_.sizes.probed.try_emplace(std::move(key));  // lowering begins anew for each demand
  // A collective that is tried is one that the other processes wait in.
  if (fresh && w_.sizes.guesses(e.op) && !e.facts->communicates)
    at->second = probe_sizes({e, w_.tape, sizes_of, resolve, [&](Sym s) { return w_.sizes.hint(s); }});
  return at->second;
}

bool ExternCalls::knows_sizes(const Entry& e, const Call& c) {
  return (w_.sizes.guesses(e.op) && extern_sizes(c)) || probed(e);
}

/// Numbers that ATen is given when the program runs: those that guards know.
void ExternCalls::resolve_numbers(ExternCall& x) {
  for (Arg& a : x.args) {
    for (Sym& s : a.syms) s = w_.sizes.resolve(s);
    if (all_known({a.syms.begin(), a.syms.end()})) a.syms.clear();  // they are what was recorded
    for (Sym s : a.syms)
      if (w_.sizes.asks_early(SizeDemand(s))) s.value();  // demands it
  }
}

/// x[mask] and y[mask] select by the same places, as many of them: one call finds them.
bool ExternCalls::same_call(const Entry& e, const Call& c) {
  const record::TensorIds made = results(e);
  std::string flags;
  for (const Arg& a : e.args)
    if (a.kind == Arg::Kind::Value) flags += detail::concat(a.value) + ",";
  const auto [at, fresh] =
      found_.try_emplace({c10::toString(e.op.operator_name()) + flags, c.all_tensors()}, made);
  for (size_t i = 0; !fresh && i < made.size(); ++i) {
    if (made[i] < 0) continue;
    w_.set_sizes(made[i], w_.sizes_of(at->second[i]));
    w_.define_root(made[i], found_values_.at(at->second[i]));
  }
  return !fresh;
}

/// From each element of a result to the next, where the tensor that it shows lies densely: real() shows every
/// second number of a complex one.
static int64_t step_of(const record::Tape& tape, const Entry& e, TensorId made) {
  const record::TensorInfo& shows = tape.tensors[made];
  const bool of_complex = any_tensor(e.args, [&](TensorId id) {
    const record::TensorInfo& of = tape.tensors[id];
    return of.storage == shows.storage && c10::isComplexType(of.dtype) && !c10::isComplexType(shows.dtype) &&
           of.sizes == shows.sizes;
  });
  return of_complex ? 2 : 1;
}

/// x[start:stop] and x[place], by the name of the operator.
static bool is_slice(const Entry& e) { return e.op.operator_name().name == "aten::slice"; }
static bool is_place(const Entry& e) { return e.op.operator_name().name == "aten::select"; }

/// Do results of these sizes lie as densely in the same bytes as what was given, like view_as_complex(), or
/// in every second number of them?
bool ExternCalls::shows_all(const Entry& e, const std::vector<Syms>& sizes) {
  const auto& tensors = w_.tape.tensors;
  const record::TensorIds made = results(e);
  auto bytes = [&](TensorId id, const Syms& of) {
    return product(of) * Sym(static_cast<int64_t>(c10::elementSize(tensors[id].dtype)));
  };
  auto shows = [&](TensorId result, const Syms& of, TensorId id) {
    const Type given = w_.read(id)->type;
    const int64_t step = step_of(w_.tape, e, result);
    const Syms strides = eager_strides(tensors[result], of, w_.sizes, step);
    if (all_known(of)) return false;
    if (step == 1)
      return given.strides == graph::contiguous_strides(given.sizes) &&
             strides == graph::contiguous_strides(of) && bytes(result, of) == bytes(id, given.sizes);
    Syms apart = given.strides;
    for (Sym& stride : apart) stride *= step;
    return strides == apart && of == given.sizes;
  };
  for (size_t i = 0; i < made.size(); ++i)
    if (made[i] >= 0 && any_tensor(e.args, [&](TensorId id) {
          return tensors[made[i]].storage == tensors[id].storage && !shows(made[i], sizes[i], id);
        }))
      return false;
  return true;
}

/// Per result; nothing: they are what was recorded, in every call. Demands what has to be known.
ExternCalls::KnownSizes ExternCalls::sizes_of_results(const Entry& e, const Call& c, bool finds_sizes) {
  const bool is_static = c.is_static();
  const record::TensorIds made = results(e);
  KnownSizes known;
  if ((!is_static && w_.sizes.guesses(e.op)) || finds_sizes) known = extern_sizes(c);
  if (finds_sizes) {
    BOLT_CHECK(known, c.name(), " finds sizes out, and has no row of sizes");
    known = with_data_sizes(w_.tape, made, std::move(*known), w_.sizes);
  }
  if (!is_static && !known) known = made.empty() ? std::vector<Syms>{} : probed(e);
  // Of a view strides and the offset must be known, too. What is written is itself.
  if (written_arguments(e).empty() && is_view(e, w_.tape) &&
      !(known && (is_slice(e) || is_place(e) || shows_all(e, *known)))) {
    for_each_tensor(e.args, [&](TensorId id) { w_.demand_place(id); });
    // What passes on is a view of what it is given, whatever its numbers are. Of others these may say whether
    // it is one (dropout).
    const bool as_recorded = known && std::ranges::all_of(*known, all_known) && e.facts->passes_on;
    known.reset();
    if (as_recorded) return known;
  }
  if (!is_static && !known) c.static_sizes();  // demands them
  return known;
}

/// Values may lie otherwise than eager's tensors. But random numbers are given out in the order of memory,
/// and some libraries' plans hold for one order only.
void ExternCalls::keep_orders(const Entry& e, ExternCall& x) {
  const std::vector<int>& some = e.facts->lie_as_eagers;
  if (!draws(e) && some.empty()) return;
  for (size_t a = 0; a < e.args.size(); ++a)
    for (TensorId id : e.args[a].tensors) {
      if (id < 0) continue;
      if (!draws(e) && std::find(some.begin(), some.end(), static_cast<int>(a)) == some.end()) {
        x.orders.emplace_back();
        continue;
      }
      const bool written =
          std::find(x.written.begin(), x.written.end(), static_cast<int>(a)) != x.written.end();
      auto order = order_in_memory(w_.tape.tensors[id]);
      if (written && !order) throw_unsupported("random numbers that are written with gaps between them");
      if (!order && is_view(e, w_.tape)) {  // without gaps it lies row by row
        order.emplace(w_.tape.tensors[id].sizes.size());
        std::iota(order->begin(), order->end(), 0);
      }
      // A copy of an input that eager made dense is no value of its own here.
      const bool is_eagers = !written && w_.input_of(id) >= 0;
      x.orders.push_back(order && !is_eagers ? std::move(*order) : std::vector<int>{});
    }
}

/// The values of the tensors among the arguments, which become positions among them.
std::vector<Value*> ExternCalls::take_operands(ExternCall& x) {
  std::vector<Value*> operands;
  for (Arg& a : x.args)
    for (TensorId& id : a.tensors) {
      if (id < 0) continue;
      operands.push_back(w_.read(id));
      id = static_cast<int>(operands.size()) - 1;
    }
  return operands;
}

graph::Node* ExternCalls::make_node(const Entry& e, const Call& c, ExternCall x, const KnownSizes& known) {
  const std::vector<Value*> operands = take_operands(x);
  if (e.op.operator_name().name.starts_with("aten::as_strided") && !lies_in_input(operands[0]))
    throw_unsupported("as_strided of a tensor that the program lays out itself");
  x.clone_results = is_view(e, w_.tape);
  if (e.op.operator_name().name == "aten::_reshape_alias") {
    // The strides it is given are those of eager's view; a copy of that lies otherwise.
    static const c10::OperatorHandle reshape = *find_operator("aten::reshape", "");
    x.op = reshape;
    x.args.resize(2);
  }
  std::vector<Type> types;
  const record::TensorIds given = results(e);
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0) continue;
    const auto& shown = w_.tape.tensors[given[i]].sizes;
    if (known && x.clone_results && (is_slice(e) || is_place(e)) && !w_.is_sized(given[i]))
      w_.set_slice(given[i], e.args[0].tensors[0], is_slice(e) ? cut_by_slice(c) : place_by_select(c),
                   is_place(e));
    if (!w_.is_sized(given[i]))
      w_.set_sizes(given[i], known ? (*known)[i] : Syms(shown.begin(), shown.end()),
                   step_of(w_.tape, e, given[i]));
    types.push_back(w_.type_of(given[i]));
  }
  for_each_written(e, [&](TensorId id) { types.push_back(w_.type_of(id)); });
  for (const Arg& r : e.results)
    if (r.kind == Arg::Kind::Value && r.value.isTensorList()) throw_unsupported("results of unknown kind");
  x.gives = types.size();
  // What only raises (_assert_async) gets a value that nobody reads: nodes are ordered by what they give.
  if (types.empty()) types.emplace_back().dtype = DType::Bool;
  // Independent copies are dense whatever the view was, in its order. Halves of numbers stay where they lie,
  // which a kernel reads as quickly as a copy is made.
  for (size_t i = 0; const TensorId id : made_by(e)) {
    if (!x.clone_results) break;
    x.shows_parts = step_of(w_.tape, e, id) != 1;
    if (!x.shows_parts) types[i].strides = dense_strides(w_.tape.tensors[id], types[i].sizes);
    ++i;
  }

  Attrs attrs{{"call", static_cast<int64_t>(w_.out.calls.size())},
              {"name", c10::toString(e.op.operator_name())},
              // Of sizes that were not tried the operator itself says whether they will do.
              {"effect", has_effects(e) || known.has_value()}};
  // Of constants it gives the same in every call, and can be called once.
  const bool has_numbers = std::ranges::any_of(x.args, [](const Arg& a) { return !a.syms.empty(); });
  if (!has_effects(e) && !known && !has_numbers) attrs["pure"] = true;
  w_.out.calls.push_back(std::move(x));
  return w_.out.graph->make_typed(Op::extern_call, operands, attrs, types, w_.loc);
}

/// What was written first: results may be windows on it.
void ExternCalls::define_results(const Entry& e, graph::Node* node, bool finds_sizes) {
  const record::TensorIds made = made_by(e);
  auto k = static_cast<int>(made.size());
  for_each_written(e, [&](TensorId id) { w_.write(id, node->out(k++)); });
  const std::set<int> storages = operand_storages(e, w_.tape);
  const bool detached = any_tensor(e.args, [&](TensorId of) { return w_.is_detached(of); });
  for (size_t i = 0; i < made.size(); ++i) {
    if (w_.is_known(made[i])) continue;  // the written argument itself
    Value* v = node->out(static_cast<int>(i));
    if (storages.count(w_.tape.tensors[made[i]].storage)) {
      w_.define_opaque(made[i], v, detached);
    } else {
      // A view's is a copy, in which the conjugates stand.
      if (w_.tape.tensors[made[i]].is_noted()) throw_unsupported("new memory that only notes its conjugates");
      w_.define_root(made[i], v);
      if (finds_sizes) found_values_[made[i]] = v;
    }
  }
}

/// The operator itself gives back the very tensor that it was given, so here it writes to it: whoever reads
/// it afterwards reads what this call gives. Calls with effects keep their order; the rest does not, and may
/// not take the memory of what the collective was given before it has ended. So that is given to this call,
/// too, which has no use for it.
void ExternCalls::wait(const Entry& e) {
  const TensorId of = e.args[0].tensors[0], root = w_.root_of(of);
  const auto at = under_way_.find(root);
  if (at == under_way_.end()) {  // of an earlier region, or none
    lower(e);
    return;
  }
  std::vector<Value*> operands = {w_.read(root)};
  operands.insert(operands.end(), at->second.begin(), at->second.end());
  under_way_.erase(at);
  ExternCall x{e.op, {e.args.begin(), e.args.end()}, {}, false, 1, {}};
  x.args[0].tensors[0] = 0;
  const Attrs attrs{{"call", static_cast<int64_t>(w_.out.calls.size())},
                    {"name", c10::toString(e.op.operator_name())},
                    {"effect", true}};
  w_.out.calls.push_back(std::move(x));
  w_.write(root,
           w_.out.graph->make_typed(Op::extern_call, operands, attrs, {w_.type_of(root)}, w_.loc)->out());
  for (TensorId id : results(e))
    if (!w_.is_known(id)) w_.define_view(id, of, {}, false);
}

void ExternCalls::check_all_are_waited_for() const {
  if (!under_way_.empty()) throw_unsupported("a collective that is waited for behind the region's end");
}

/// One more call of ATen, which nobody recorded as such.
Value* ExternCalls::made_by_call(ExternCall x, std::vector<Value*> operands, const Type& type) {
  const Attrs attrs{{"call", static_cast<int64_t>(w_.out.calls.size())},
                    {"name", c10::toString(x.op.operator_name())},
                    {"effect", false}};
  w_.out.calls.push_back(std::move(x));
  return w_.out.graph->make_typed(Op::extern_call, std::move(operands), attrs, {type}, w_.loc)->out();
}

/// Parts of complex numbers can be written to, too (ATen fills gradients of spectra so), and all of them as
/// real ones (optimizers do).
void ExternCalls::define_inverse(const Entry& e, const ExternCall& x) {
  const auto inverse = inverse_of(e.op), whole = whole_inverse_of(e.op);
  const record::TensorIds made = results(e);
  if (made.size() != 1 || made[0] < 0 || e.args[0].kind != Arg::Kind::Tensor) return;
  if (whole) {
    ExternCall call{*whole, {x.args[0]}, {}, false, 1, {}};
    call.args[0].tensors = {0};
    std::vector<int>& rows = call.orders.emplace_back(w_.tape.tensors[made[0]].sizes.size());
    std::iota(rows.begin(), rows.end(), 0);
    w_.define_inverse(made[0], e.args[0].tensors[0], [this, call](Value* before, Value* v) {
      if (before->type.strides != graph::contiguous_strides(before->type.sizes))
        throw_unsupported("a write through a view of complex numbers that are not dense");
      return made_by_call(call, {v}, before->type);
    });
  }
  if (!inverse) return;
  ExternCall call{*inverse, x.args, {}, false, 1, {}};
  call.args[0].tensors = {0};
  Arg written;
  written.kind = Arg::Kind::Tensor;
  written.tensors = {1};
  call.args.insert(call.args.begin() + 1, std::move(written));
  w_.define_inverse(made[0], e.args[0].tensors[0], [this, call](Value* before, Value* v) {
    return made_by_call(call, {before, v}, before->type);
  });
}

/// Gives the tensor that was turned as a copy; its other views see the same memory as before. False: it is an
/// input, whose geometry would have to be set when the region has run.
bool ExternCalls::turn(const Entry& e) {
  const auto functional = without_turning(e.op);
  const record::TensorIds made = results(e);
  if (!functional || made.size() != 1 || made[0] < 0 || e.args[0].kind != Arg::Kind::Tensor) return false;
  const TensorId of = e.args[0].tensors[0], shown = made[0];
  const auto& tensors = w_.tape.tensors;
  if (w_.input_of(of) >= 0 || tensors[of].storage != tensors[shown].storage || tensors[shown].is_noted())
    return false;
  const Call c = call(e);
  if (!c.is_static()) c.static_sizes();
  ExternCall x{*functional, {e.args.begin(), e.args.end()}, {}, true, 1, {}};
  resolve_numbers(x);
  x.args[0].tensors = {0};
  const record::Dims& sizes = tensors[shown].sizes;
  w_.set_sizes(shown, Syms(sizes.begin(), sizes.end()));
  Type type = w_.type_of(shown);
  type.strides = graph::contiguous_strides(type.sizes);
  w_.define_opaque(shown, made_by_call(std::move(x), {w_.read(of)}, type), w_.is_detached(of));
  return true;
}

void ExternCalls::lower(const Entry& e) {
  if (e.op.hasTag(at::Tag::inplace_view)) {
    if (turn(e)) return;
    throw_unsupported(c10::toString(e.op.operator_name()), " of an input that is not lowered");
  }
  const Call c = call(e);
  check_overlaps(e, c);
  ExternCall x{e.op, {e.args.begin(), e.args.end()}, written_arguments(e), false, 0, {}};
  resolve_numbers(x);
  const bool finds_sizes =
      makes_data_sizes(w_.tape, results(e), static_cast<int>(&e - w_.tape.entries.data()));
  if (finds_sizes && same_call(e, c)) return;
  keep_orders(e, x);
  const KnownSizes known = sizes_of_results(e, c, finds_sizes);
  if (is_view(e, w_.tape)) define_inverse(e, x);
  graph::Node* node = make_node(e, c, std::move(x), known);
  define_results(e, node, finds_sizes);
  if (!e.facts->is_waited_for) return;
  auto begin = [&](TensorId id) { under_way_[w_.root_of(id)] = node->operands; };
  for (TensorId id : made_by(e)) begin(id);
  for_each_written(e, begin);
}

}  // namespace bolt::lower

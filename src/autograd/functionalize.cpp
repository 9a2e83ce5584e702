// autograd/functionalize.cpp
#include "autograd/functionalize.h"

#include <ATen/core/function_schema.h>

#include <algorithm>
#include <map>
#include <set>

#include "autograd/data_sizes.h"
#include "autograd/extern_sizes.h"
#include "autograd/lowering.h"
#include "autograd/probe.h"
#include "record/convert.h"
#include "support/error.h"

namespace bolt::autograd {
namespace {

using graph::Graph;
using graph::InputKind;
using graph::Type;
using record::Arg;
using record::Entry;
using record::Tape;
using record::TensorId;
using record::TensorInfo;
using record::written_arguments;

bool all_known(const Syms& xs) {
  return std::all_of(xs.begin(), xs.end(), [](Sym s) { return s.is_const(); });
}

class Functionalizer {
 public:
  Functionalizer(const Tape& tape, const LowerOptions& options, Sizes& sizes)
      : tape_(tape),
        options_(options),
        sizes_(sizes),
        state_(tape.tensors.size()),
        storages_(storage_count(tape)) {
    out_.graph = std::make_unique<Graph>();
    for (const record::SourceLine& l : tape.locs)
      locs_.push_back({Interned(l.file), l.line, Interned(l.function)});
  }

  Lowered run(const std::vector<TensorId>& wanted) {
    for (const TensorInfo& t : tape_.tensors)
      if (!t.plain) throw_unsupported("a tensor that is not plain strided memory");
    find_shared_inputs();
    sizes_.begin_again();
    for (TensorId id : tape_.inputs) set_sizes(id, sizes_.of_input(tape_.tensors[id]));
    for (const Entry& e : tape_.entries) {
      try {
        lower(e);
      } catch (SizeDemand& demand) {
        demand.where = detail::concat(e.op.operator_name().name, " at ", loc_.file, ":", loc_.line);
        throw;
      }
      if (sizes_.any_data()) rule_out_nothing(*out_.graph, last_checked_, sizes_);
    }
    outputs(wanted);
    write_back();
    reshaped_inputs();
    sizes_.settle();
    out_.constants = options_.constants;
    out_.graph->renumber();
    return std::move(out_);
  }

 private:
  // How a tensor's value is found: the root of its storage holds a value; others hang on a parent by view
  // steps.
  struct TensorState {
    bool known = false;
    TensorId parent = -1;         // -1: root
    std::vector<ViewStep> steps;  // from the parent
    bool detached = false;        // from what the root requires
    bool opaque = false;          // steps cannot express it: only the value at `version` is known
    Value* value = nullptr;       // as of `version` of the storage
    int version = -1;
    bool sized = false;
    Syms sizes, strides;             // as eager lays it out
    Sym offset;                      // from the first element of the storage's root, in elements
    bool placed = true;              // offset is known
    bool placed_as_recorded = true;  // at the same place in every call, relative to the root
  };
  struct StorageState {
    TensorId root = -1;
    int version = 0;
    int input = -1;       // tape input that owns it
    bool shared = false;  // by several inputs
  };

  static size_t storage_count(const Tape& tape) {
    int n = 0;
    for (const TensorInfo& t : tape.tensors) n = std::max(n, t.storage + 1);
    return static_cast<size_t>(n);
  }

  StorageState& storage(TensorId id) { return storages_[tape_.tensors[id].storage]; }

  // torch.tensor(...) inside the function: known contents, and memory of each call's own.
  bool is_constant(TensorId id) const { return options_.constants.count(tape_.tensors[id].input) > 0; }

  void set_sizes(TensorId id, const Syms& sizes) {
    TensorState& t = state_[id];
    const TensorInfo& info = tape_.tensors[id];
    BOLT_CHECK(sizes.size() == info.sizes.size(), "a tensor of rank ", info.sizes.size(),
               " is computed with ", sizes.size());
    for (size_t d = 0; d < sizes.size(); ++d)
      BOLT_CHECK(sizes_.hint(sizes[d]) == info.sizes[d], "size ", d, " is computed as ", sizes[d].str(), " (",
                 sizes_.hint(sizes[d]), ") where eager had ", info.sizes[d]);
    sizes_.bind(id, sizes);
    t.sized = true;
    t.sizes = sizes;
    t.strides = eager_strides(info, sizes);
  }

  // The recorded strides as expressions: those of a dense tensor with its dimensions in the order that was
  // seen. With gaps, or repeated elements, they say nothing about other sizes.
  Syms eager_strides(const TensorInfo& info, const Syms& sizes) {
    Syms strides(info.strides.begin(), info.strides.end());
    if (all_known(sizes)) return strides;
    std::vector<size_t> order(sizes.size());  // innermost first
    for (size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
    // A dimension of size 1 lies inside the one it shares its stride with.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(info.strides[a], !sizes[a].is_const(1)) <
             std::pair(info.strides[b], !sizes[b].is_const(1));
    });
    Sym run = 1;
    for (size_t i : order) {
      if (sizes[i].is_const(
              1)) {  // its stride means nothing, and is kept where it was that of a dense tensor
        if (info.strides[i] == sizes_.hint(run)) strides[i] = run;
        continue;
      }
      if (info.strides[i] != sizes_.hint(run)) return {};
      strides[i] = run;
      if (!sizes[i].is_const(0)) run *= sizes[i];  // as torch has them: as if there were one
    }
    return strides;
  }

  // The type of a tensor as eager has it.
  Type type_of(TensorId id) {
    const TensorInfo& info = tape_.tensors[id];
    const TensorState& state = state_[id];
    BOLT_CHECK(state.sized, "the sizes of tensor ", id, " are asked for before it is made");
    auto dtype = record::to_bolt(info.dtype);
    if (!dtype) throw_unsupported("element type ", c10::toString(info.dtype));
    Type t;
    t.dtype = *dtype;
    t.device = record::to_bolt(info.device);
    t.sizes = state.sizes;
    t.strides = state.strides;
    if (t.strides.size() != t.sizes.size())
      for (Sym s : t.sizes) s.value();
    return t;
  }

  // Two inputs on one storage: harmless while nobody writes it.
  void find_shared_inputs() {
    for (TensorId id : tape_.inputs) {
      if (is_constant(id)) continue;
      StorageState& s = storage(id);
      if (s.input >= 0) s.shared = true;
      s.input = tape_.tensors[id].input;
    }
  }

  Value* input_value(TensorId id) {
    const TensorInfo& info = tape_.tensors[id];
    auto kind = InputKind::Arg;
    if (is_constant(id))
      kind = InputKind::Const;
    else if (info.input < static_cast<int>(options_.is_param.size()) && options_.is_param[info.input])
      kind = InputKind::Param;
    out_.inputs.push_back(info.input);
    return out_.graph->add_input(type_of(id), kind);
  }

  Value* read(TensorId id) {
    TensorState& t = state_[id];
    StorageState& s = storage(id);
    if (!t.known) {  // an input at its first use
      BOLT_CHECK(tape_.tensors[id].input >= 0, "tensor ", id, " is read before it is made");
      if (s.version > 0) throw_unsupported("an input that overlaps another input which was written");
      t.known = true;
      t.value = input_value(id);
      t.version = 0;
      if (s.root < 0) s.root = id;
      return t.value;
    }
    if (t.version == s.version) return t.value;
    if (t.opaque) throw_unsupported("a view whose base was written later");
    BOLT_CHECK(t.parent >= 0, "the root of a storage is always current");
    t.value = apply(t.steps, read(t.parent));
    t.version = s.version;
    return t.value;
  }

  Value* apply(const std::vector<ViewStep>& steps, Value* v) {
    for (const ViewStep& step : steps) v = out_.graph->make(step.op, {v}, step.attrs, loc_)->out();
    return v;
  }

  void write(TensorId id, Value* value) {
    TensorState& t = state_[id];
    if (!t.known) read(id);
    StorageState& s = storage(id);
    if (s.shared) throw_unsupported("a write to an input whose memory another input shares");
    if (t.opaque) throw_unsupported("a write through a view that has no inverse");
    if (t.parent >= 0) {
      // Values on the way down, so that each step can be inverted against what it looked at.
      std::vector<Value*> chain{read(t.parent)};
      for (const ViewStep& step : t.steps)
        chain.push_back(out_.graph->make(step.op, {chain.back()}, step.attrs, loc_)->out());
      Value* v = value;
      for (size_t i = t.steps.size(); i-- > 0;) v = invert(t.steps[i], chain[i], v);
      write(t.parent, v);
    } else {
      const TensorInfo& info = tape_.tensors[id];
      if (record::elements_share_memory(info.sizes, info.strides))
        throw_unsupported("a write to a tensor whose elements share their memory");
      s.root = id;
      ++s.version;
    }
    t.value = value;
    t.version = s.version;
  }

  // The operand of `step` after its result became `v`.
  Value* invert(const ViewStep& step, Value* before, Value* v) {
    auto attr = [&](const char* name) { return step.attrs.find(name)->second; };
    switch (step.op) {
      case Op::reshape:
        return out_.graph->make(Op::reshape, {v}, {{"sizes", before->type.sizes}}, loc_)->out();
      case Op::permute: {
        auto dims = std::get<Syms>(attr("dims"));
        Syms inverse(dims.size());
        for (size_t i = 0; i < dims.size(); ++i) inverse[dims[i].value()] = static_cast<int64_t>(i);
        return out_.graph->make(Op::permute, {v}, {{"dims", inverse}}, loc_)->out();
      }
      case Op::slice:
        return out_.graph
            ->make(Op::slice_scatter, {before, v},
                   {{"dim", attr("dim")}, {"start", attr("start")}, {"step", attr("step")}}, loc_)
            ->out();
      case Op::flip: return out_.graph->make(Op::flip, {v}, step.attrs, loc_)->out();
      default: throw_unsupported("a write through a view made by ", graph::op_info(step.op).name);
    }
  }

  void define_root(TensorId id, Value* v) {
    TensorState& t = state_[id];
    t.known = true;
    t.value = v;
    t.version = 0;
    StorageState& s = storage(id);
    s.root = id;
    s.version = 0;
    set_sizes(id, v->type.sizes);
    // The layout eager chose; the value may be laid out otherwise while it is only used inside.
    if (v->def) v->type.strides = type_of(id).strides;
  }

  void define_view(TensorId id, TensorId parent, std::vector<ViewStep> steps, bool detaches) {
    TensorState& t = state_[id];
    t.known = true;
    t.detached = detaches || state_[parent].detached;
    t.parent = parent;
    t.steps = std::move(steps);
    t.value = apply(t.steps, read(parent));
    t.version = storage(id).version;
    t.sizes = t.value->type.sizes;
    sizes_.bind(id, t.sizes);
    t.sized = true;
    t.strides = view_strides(id, state_[parent]);
  }

  // Of a view: what its steps make of the strides of what it is a view of, where that is what was recorded.
  Syms view_strides(TensorId id, const TensorState& parent) {
    const TensorInfo& info = tape_.tensors[id];
    const TensorState& view = state_[id];
    state_[id].placed = false;
    auto moves = [](const ViewStep& step) {
      return step.op == Op::slice && !all_known(std::get<Syms>(step.attrs.find("start")->second));
    };
    if (all_known(view.sizes) && all_known(parent.sizes) && parent.placed_as_recorded &&
        std::none_of(view.steps.begin(), view.steps.end(), moves)) {
      state_[id].placed = parent.placed;
      state_[id].offset = parent.offset + Sym(info.offset - tape_.tensors[view.parent].offset);
      return {info.strides.begin(), info.strides.end()};
    }
    state_[id].placed_as_recorded = false;
    // Part of a tensor may have been all of it, and dense, when it was recorded.
    auto cuts = [&](const ViewStep& step) {
      return moves(step) ||
             (step.op == Op::slice && !std::get<Syms>(step.attrs.find("length")->second)[0].is_const());
    };
    auto as_recorded = [&]() -> Syms {
      if (std::any_of(view.steps.begin(), view.steps.end(), cuts)) return {};
      return eager_strides(info, view.sizes);
    };
    Graph scratch;
    Type type = view.value->type;
    type.sizes = parent.sizes;
    type.strides = parent.strides;
    if (parent.strides.size() != parent.sizes.size() || !parent.placed) return as_recorded();
    state_[id].offset = parent.offset;
    for (const ViewStep& step : view.steps) {
      if (step.op == Op::slice) {
        const auto start = std::get<Syms>(step.attrs.find("start")->second)[0];
        state_[id].offset += start * type.strides[std::get<int64_t>(step.attrs.find("dim")->second)];
      } else if (step.op == Op::flip ||
                 (step.op == Op::as_strided && type.strides != graph::contiguous_strides(type.sizes))) {
        return as_recorded();
      }
      if (step.op == Op::as_strided) {  // of a tensor without gaps, whatever it lies in
        state_[id].offset += std::get<Syms>(step.attrs.find("offset")->second)[0];
        type.sizes = std::get<Syms>(step.attrs.find("sizes")->second);
        type.strides = std::get<Syms>(step.attrs.find("strides")->second);
        continue;
      }
      if (step.op == Op::reshape) {
        const auto& to = std::get<Syms>(step.attrs.find("sizes")->second);
        type.strides = restrided(type, to);
        type.sizes = to;
        if (type.strides.size() != to.size()) return as_recorded();
      } else {
        type = scratch.make(step.op, {scratch.add_input(type, InputKind::Arg)}, step.attrs)->out()->type;
      }
    }
    for (size_t i = type.sizes.size(); i-- > 0;) {
      if (sizes_.hint(type.strides[i]) == info.strides[i]) continue;
      if (!type.sizes[i].is_const(1)) return as_recorded();
      type.strides[i] = stride_of_one(info.strides[i], type, i, parent);
    }
    state_[id].placed = true;
    return type.strides;
  }

  // Of a dimension of size 1, which means nothing: unsqueeze() makes it the length of what is inside, others
  // keep that of what they are a view of.
  Sym stride_of_one(int64_t recorded, const Type& view, size_t i, const TensorState& parent) {
    const bool innermost = i + 1 == view.sizes.size();
    const Sym inside = innermost ? Sym(1) : view.sizes[i + 1] * view.strides[i + 1];
    if (sizes_.hint(inside) == recorded) return inside;
    for (Sym stride : parent.strides)
      if (!stride.is_const() && sizes_.hint(stride) == recorded) return stride;
    return recorded;
  }

  // Strides of a view with other sizes: runs of dimensions that lie one in the other are cut anew. Empty:
  // none.
  static Syms restrided(const Type& from, const Syms& to) {
    Syms strides(to.size(), Sym(1));
    // Of no elements they say nothing, but dimensions of size 1 come and go.
    if (std::any_of(to.begin(), to.end(), [](Sym size) { return size.is_const(0); })) {
      size_t i = 0;
      for (size_t j = 0; j < to.size(); ++j) {
        if (to[j].is_const(1)) continue;
        while (i < from.sizes.size() && from.sizes[i].is_const(1)) ++i;
        if (i == from.sizes.size() || from.sizes[i] != to[j]) return {};
        strides[j] = from.strides[i++];
      }
      return strides;
    }
    size_t i = from.sizes.size();
    Sym left = 1, stride = 1;  // of the run at hand: elements not yet given out, and their distance
    for (size_t j = to.size(); j-- > 0;) {
      if (to[j].is_const(1)) continue;
      while (left.is_const(1)) {
        if (i == 0) return {};
        left = from.sizes[--i];
        stride = from.strides[i];
      }
      while (left != to[j] && (floordiv(left, to[j]) * to[j] != left)) {  // the run goes on outwards
        if (i == 0) return {};
        --i;
        if (from.sizes[i].is_const(1)) continue;
        if (from.strides[i] != stride * left) return {};
        left *= from.sizes[i];
      }
      strides[j] = stride;
      left = floordiv(left, to[j]);
      stride *= to[j];
    }
    return strides;
  }

  // as_strided reads the storage wherever its tensor lies there; only those of inputs are eager's. A view
  // without elements lies nowhere once the passes have been over it.
  static bool lies_in_input(const Value* v) {
    if (v->def && v->type.numel().is_const(0)) return false;
    while (v->def && (v->def->op == Op::slice || v->def->op == Op::permute)) v = v->def->operands[0];
    return !v->def;
  }

  void lower(const Entry& e) {
    loc_ = e.loc >= 0 ? locs_[e.loc] : graph::Loc{};
    const std::vector<TensorId> ids = results(e);
    if (std::all_of(ids.begin(), ids.end(), [&](TensorId r) { return r < 0 || state_[r].known; }) &&
        written_arguments(e).empty() && !ids.empty() && !has_effects(e))
      return;  // gave back what it was given (contiguous, to, dropout in eval mode)
    std::string name = e.op.operator_name().name;
    if (!e.op.operator_name().overload_name.empty()) name += "." + e.op.operator_name().overload_name;
    const auto& table = lowerings();
    if (auto it = table.find(name); it != table.end() && lower_by_row(e, it->second)) return;
    if (auto row = functional_row(e)) {
      if (lower_in_place(e, *row)) return;
    }
    lower_extern(e);
  }

  /// What the row makes of the call. Nothing: it stays one call of ATen, also where the row must know a size
  /// and that call need not. (Of two sizes that must agree there is nothing to gain.)
  std::vector<Value*> built(const Entry& e, const Lowering& row, Call& c) {
    try {
      return row.build(c);
    } catch (const SizeDemand& demand) {
      if (demand.equal || sizes_.asks_early(demand) || is_view(e) || !probed(e)) throw;
      return {};
    }
  }

  std::set<int> operand_storages(const Entry& e) const {
    std::set<int> storages;
    for (const Arg& a : e.args)
      for (TensorId id : a.tensors)
        if (id >= 0) storages.insert(tape_.tensors[id].storage);
    return storages;
  }

  /// Do its results lie in what it was given?
  bool is_view(const Entry& e) const {
    const std::set<int> given = operand_storages(e);
    const std::vector<TensorId> made = results(e);
    return std::any_of(made.begin(), made.end(),
                       [&](TensorId r) { return r >= 0 && given.count(tape_.tensors[r].storage); });
  }

  /// Do results of these sizes lie as densely in the same bytes as what was given, like view_as_complex()?
  bool shows_all(const Entry& e, const std::vector<Syms>& sizes) {
    const std::vector<TensorId> made = results(e);
    auto bytes = [&](TensorId id, const Syms& of) {
      return product(of) * Sym(static_cast<int64_t>(c10::elementSize(tape_.tensors[id].dtype)));
    };
    for (size_t i = 0; i < made.size(); ++i)
      for (const Arg& a : e.args)
        for (TensorId id : a.tensors) {
          if (made[i] < 0 || id < 0 || tape_.tensors[made[i]].storage != tape_.tensors[id].storage) continue;
          const Type given = read(id)->type;
          const Syms strides = eager_strides(tape_.tensors[made[i]], sizes[i]);
          const bool dense = given.strides == graph::contiguous_strides(given.sizes) &&
                             strides == graph::contiguous_strides(sizes[i]);
          if (!dense || all_known(sizes[i]) || bytes(made[i], sizes[i]) != bytes(id, given.sizes))
            return false;
        }
    return true;
  }

  /// Sizes of the results of a call of ATen that has no rule.
  const std::optional<std::vector<Syms>>& probed(const Entry& e) {
    auto resolve = [&](Sym s) { return sizes_.resolve(s); };
    auto sizes_of = [&](TensorId id) { return read(id)->type.sizes; };
    std::string key = std::to_string(&e - tape_.entries.data());
    for (const Arg& a : e.args) {
      for (TensorId id : a.tensors)
        if (id >= 0)
          for (Sym s : sizes_of(id)) key += ' ' + s.str();
      for (Sym s : a.syms) key += ' ' + resolve(s).str();
    }
    auto [at, fresh] = sizes_.probed.try_emplace(std::move(key));  // lowering begins anew for each demand
    if (fresh) at->second = probe_sizes({e, tape_, sizes_of, resolve, [&](Sym s) { return sizes_.hint(s); }});
    return at->second;
  }

  /// Numbers that ATen is given when the program runs: those that guards know.
  void resolve_numbers(ExternCall& x) {
    for (Arg& a : x.args) {
      for (Sym& s : a.syms) s = sizes_.resolve(s);
      if (all_known({a.syms.begin(), a.syms.end()})) a.syms.clear();  // they are what was recorded
      for (Sym s : a.syms)
        if (sizes_.asks_early(SizeDemand(s))) s.value();  // demands it
    }
  }

  // Also of what gives and writes nothing: it is there to raise (_assert_async).
  static bool has_effects(const Entry& e) {
    return (e.results.empty() && written_arguments(e).empty()) || e.op.schema().name().find("aten::") != 0 ||
           (e.op.hasSchema() && std::any_of(e.op.getTags().begin(), e.op.getTags().end(),
                                            [](at::Tag t) { return t == at::Tag::nondeterministic_seeded; }));
  }

  std::vector<TensorId> results(const Entry& e) const {
    std::vector<TensorId> out;
    for (const Arg& r : e.results) out.insert(out.end(), r.tensors.begin(), r.tensors.end());
    return out;
  }

  Call call(const Entry& e) {
    std::vector<std::vector<Value*>> values;
    for (const Arg& a : e.args) {
      values.emplace_back();
      for (TensorId id : a.tensors) values.back().push_back(id < 0 ? nullptr : read(id));
    }
    return Call(*out_.graph, tape_, e, loc_, std::move(values), sizes_);
  }

  static bool compilable(const Entry& e, const Tape& tape) {
    for (const auto* list : {&e.args, &e.results})
      for (const Arg& a : *list)
        for (TensorId id : a.tensors)
          if (id >= 0 && c10::isComplexType(tape.tensors[id].dtype)) return false;
    return true;
  }

  bool lower_by_row(const Entry& e, const Lowering& row) {
    if (!compilable(e, tape_)) return false;
    Call c = call(e);
    auto ids = results(e);
    if (row.view) {
      if (first_tensor(e) < 0) return lower_number(c, e);
      auto steps = row.view(c);
      if (!steps) return false;
      const Arg& first = e.args[0];
      const bool each = first.kind == Arg::Kind::TensorList && first.tensors.size() == ids.size();
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || state_[ids[i]].known) continue;
        const TensorId parent = each ? first.tensors[i] : first_tensor(e);
        // The run has shown whether this was a view or a copy (reshape, to, contiguous are either).
        if (tape_.tensors[ids[i]].storage == tape_.tensors[parent].storage)
          define_view(ids[i], parent, (*steps)[i], row.detaches), became(parent, ids[i], e);
        else
          define_root(ids[i], converted(apply((*steps)[i], read(parent)), ids[i]));
      }
      return true;
    }
    auto values = built(e, row, c);
    if (values.empty()) return false;
    BOLT_CHECK(values.size() == ids.size(), "the row of ", c.name(), " gave ", values.size(),
               " results, not ", ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || state_[ids[i]].known) continue;
      check_shape(c, values[i], ids[i]);
      define_root(ids[i], values[i]);
    }
    return true;
  }

  /// A number as a tensor of some element type: the transforms of torch.func convert the numbers they meet.
  bool lower_number(const Call& c, const Entry& e) {
    const auto ids = results(e);
    const bool converts = ids.size() == 1 && ids[0] >= 0 && tape_.tensors[ids[0]].sizes.empty();
    const auto dtype = converts ? record::to_bolt(tape_.tensors[ids[0]].dtype) : std::nullopt;
    if (!dtype) return false;
    define_root(ids[0], c.operand("self", *dtype));
    return true;
  }

  void check_shape(const Call& c, Value* v, TensorId id) {
    const TensorInfo& want = tape_.tensors[id];
    bool same = v->type.sizes.size() == want.sizes.size() && v->type.dtype == *record::to_bolt(want.dtype);
    for (size_t d = 0; same && d < want.sizes.size(); ++d)
      same = sizes_.hint(v->type.sizes[d]) == want.sizes[d];
    BOLT_CHECK(same, "the row of ", c.name(), " gave ", v->type.str(), " where eager gave ",
               c10::toString(want.dtype), at::IntArrayRef(want.sizes));
  }

  // A copy may change the dtype (to) on the way.
  Value* converted(Value* v, TensorId id) {
    auto dtype = record::to_bolt(tape_.tensors[id].dtype);
    if (!dtype) throw_unsupported("element type ", c10::toString(tape_.tensors[id].dtype));
    if (v->type.dtype != *dtype) v = out_.graph->make(Op::cast, {v}, {{"dtype", *dtype}}, loc_)->out();
    return v;
  }

  static TensorId first_tensor(const Entry& e) {
    for (const Arg& a : e.args)
      if (!a.tensors.empty()) return a.tensors[0];
    return -1;
  }

  // The row of add for add_, with the same overload.
  const Lowering* functional_row(const Entry& e) const {
    const auto& name = e.op.operator_name();
    if (name.name.empty() || name.name.back() != '_') return nullptr;
    std::string base = name.name.substr(0, name.name.size() - 1);
    if (!name.overload_name.empty()) base += "." + name.overload_name;
    auto it = lowerings().find(base);
    return it != lowerings().end() && it->second.build ? &it->second : nullptr;
  }

  bool lower_in_place(const Entry& e, const Lowering& row) {
    auto written = written_arguments(e);
    if (written.size() != 1 || written[0] != 0 || e.args[0].kind != Arg::Kind::Tensor) return false;
    TensorId self = e.args[0].tensors[0];
    auto ids = results(e);
    if (ids.size() != 1 || ids[0] != self) return false;  // changed its own geometry (unsqueeze_)
    if (!compilable(e, tape_)) return false;
    Call c = call(e);
    auto values = built(e, row, c);
    if (values.size() != 1) return false;
    write(self, fitted(values[0], self));
    return true;
  }

  // What an in-place operator stores: cast to the destination's dtype and broadcast to its sizes.
  Value* fitted(Value* v, TensorId id) {
    Type want = type_of(id);
    if (v->type.dtype != want.dtype)
      v = out_.graph->make(Op::cast, {v}, {{"dtype", want.dtype}}, loc_)->out();
    if (v->type.sizes != want.sizes)
      v = out_.graph->make(Op::expand, {v}, {{"sizes", want.sizes}}, loc_)->out();
    return v;
  }

  // One call of ATen.
  void lower_extern(const Entry& e) {
    // Nothing says what the new sizes do to the tensor's other views.
    if (e.op.hasTag(at::Tag::inplace_view))
      throw_unsupported(c10::toString(e.op.operator_name()), " of a tensor that is not lowered");
    const Call c = call(e);
    ExternCall x{e.op, e.args, written_arguments(e), false};
    resolve_numbers(x);
    const bool is_static = c.is_static();
    std::optional<std::vector<Syms>> known;
    const std::vector<TensorId> made = results(e);
    const bool makes_sizes = makes_data_sizes(tape_, made, static_cast<int>(&e - tape_.entries.data()));
    if (makes_sizes && same_call(e, c)) return;
    if (!is_static || makes_sizes) known = extern_sizes(c);
    if (makes_sizes) {
      BOLT_CHECK(known, c.name(), " finds sizes out, and has no row of sizes");
      known = with_data_sizes(tape_, made, std::move(*known), sizes_);
    }
    if (!is_static && !known) known = made.empty() ? std::vector<Syms>{} : probed(e);
    // Of a view strides and the offset must be known, too. What is written is itself.
    if (x.written.empty() && is_view(e) && !(known && shows_all(e, *known))) {
      for (const Arg& a : e.args)
        for (TensorId id : a.tensors)
          if (id >= 0) demand_place(id);
      known.reset();
    }
    if (!is_static && !known) c.static_sizes();  // demands them
    std::vector<Value*> operands;
    for (Arg& a : x.args)
      for (TensorId& id : a.tensors) {
        if (id < 0) continue;
        operands.push_back(read(id));
        id = static_cast<int>(operands.size()) - 1;
      }
    if (e.op.operator_name().name.starts_with("aten::as_strided") && !lies_in_input(operands[0]))
      throw_unsupported("as_strided of a tensor that the program lays out itself");
    const std::set<int> storages = operand_storages(e);
    std::vector<Type> types;
    std::vector<TensorId> fresh;  // results that become values of this node
    const std::vector<TensorId> given = results(e);
    for (size_t i = 0; i < given.size(); ++i) {
      const TensorId id = given[i];
      if (id < 0) continue;  // no tensor at all (weights that nobody asked an attention for)
      const auto& shown = tape_.tensors[id].sizes;
      if (!state_[id].sized) set_sizes(id, known ? (*known)[i] : Syms(shown.begin(), shown.end()));
      types.push_back(type_of(id));
      fresh.push_back(id);
      if (storages.count(tape_.tensors[id].storage)) x.clone_results = true;
    }
    for (int w : x.written)
      for (TensorId id : e.args[w].tensors)
        if (id >= 0) types.push_back(type_of(id));
    for (const Arg& r : e.results)
      if (r.kind == Arg::Kind::Value && r.value.isTensorList()) throw_unsupported("results of unknown kind");

    // What only raises (_assert_async) gets a value that nobody reads: nodes are ordered by what they give.
    if (types.empty()) types.emplace_back().dtype = DType::Bool;

    Attrs attrs{{"call", static_cast<int64_t>(out_.calls.size())},
                {"name", c10::toString(e.op.operator_name())},
                // Of sizes that were not tried the operator itself says whether they will do.
                {"effect", has_effects(e) || known.has_value()}};
    if (x.clone_results)  // independent copies are dense whatever the view was
      for (Type& t : types) t.strides = graph::contiguous_strides(t.sizes);
    graph::Node* node = out_.graph->make_typed(Op::extern_call, operands, attrs, types, loc_);
    out_.calls.push_back(std::move(x));

    size_t k = fresh.size();
    for (int w : out_.calls.back().written)
      for (TensorId id : e.args[w].tensors)
        if (id >= 0) write(id, node->out(static_cast<int>(k++)));
    for (size_t i = 0; i < fresh.size(); ++i) {
      TensorId id = fresh[i];
      TensorState& t = state_[id];
      if (t.known) continue;  // the written argument itself
      if (storages.count(tape_.tensors[id].storage)) {
        t.known = t.opaque = true;
        for (const Arg& a : e.args)
          for (TensorId of : a.tensors) t.detached |= of >= 0 && state_[of].detached;
        t.value = node->out(static_cast<int>(i));
        t.version = storage(id).version;
      } else {
        define_root(id, node->out(static_cast<int>(i)));
        if (makes_sizes) found_values_[id] = node->out(static_cast<int>(i));
      }
    }
  }

  /// x[mask] and y[mask] select by the same places, as many of them: one call finds them.
  bool same_call(const Entry& e, const Call& c) {
    const std::vector<TensorId> made = results(e);
    std::string flags;
    for (const Arg& a : e.args)
      if (a.kind == Arg::Kind::Value) flags += detail::concat(a.value) + ",";
    const auto [at, fresh] =
        found_.try_emplace({c10::toString(e.op.operator_name()) + flags, c.all_tensors()}, made);
    for (size_t i = 0; !fresh && i < made.size(); ++i) {
      if (made[i] < 0) continue;
      set_sizes(made[i], state_[at->second[i]].sizes);
      define_root(made[i], found_values_.at(at->second[i]));
    }
    return !fresh;
  }

  // Outputs that share a storage must share it again: the storage's root is made whole and they are views of
  // it. One alone is made as it is, however large the storage it had in eager.
  void outputs(const std::vector<TensorId>& wanted) {
    std::map<int, std::set<TensorId>> users;
    for (TensorId id : wanted) users[tape_.tensors[id].storage].insert(id);
    out_.outputs.resize(wanted.size());
    std::map<int, int> roots;  // storage -> its TensorOut
    for (size_t i = 0; i < wanted.size(); ++i) {
      TensorId id = wanted[i];
      const TensorInfo& info = tape_.tensors[id];
      const StorageState& s = storage(id);
      TensorOut o;
      o.sizes = type_of(id).sizes;
      o.strides = type_of(id).strides;
      if (info.input >= 0 && !is_constant(id)) {
        o.kind = TensorOut::Kind::Input;
        o.index = info.input;
      } else if (s.input >= 0) {
        same_type(info, tape_.tensors[tape_.inputs[s.input]]);
        o.kind = TensorOut::Kind::InputView;
        o.index = s.input;
        o.offset = offset_in(id, tape_.inputs[s.input]);
        o.detached = state_[id].detached;
      } else if (users[info.storage].size() == 1 &&
                 !record::elements_share_memory(info.sizes, info.strides)) {
        auto [it, first] = roots.try_emplace(info.storage, static_cast<int>(i));
        o = first ? fresh_output(id, o) : out_.outputs[it->second];
      } else {
        auto [it, first] = roots.try_emplace(info.storage, static_cast<int>(out_.outputs.size()));
        if (first) {
          TensorOut whole;
          whole.sizes = type_of(s.root).sizes;
          whole.strides = type_of(s.root).strides;
          out_.outputs.push_back(fresh_output(s.root, whole));
        }
        same_type(info, tape_.tensors[s.root]);
        o.kind = TensorOut::Kind::OutputView;
        o.index = it->second;
        o.offset = offset_in(id, s.root);
      }
      out_.outputs[i] = o;
    }
  }

  static void same_type(const TensorInfo& view, const TensorInfo& base) {
    if (view.dtype != base.dtype)
      throw_unsupported("a result that shows its memory as numbers of another type");
  }

  // Elements between the first elements of a view and of what it is a view of.
  Sym offset_in(TensorId id, TensorId base) {
    const int64_t distance = tape_.tensors[id].offset - tape_.tensors[base].offset;
    const Sym computed = state_[id].offset - state_[base].offset;
    if (state_[id].placed && state_[base].placed && sizes_.hint(computed) == distance) return computed;
    for (TensorId t : {id, base}) demand_place(t);
    return distance;
  }

  /// Where a tensor lies in its storage is what it was in the recorded run.
  void demand_place(TensorId t) const {
    for (Sym s : state_[t].sizes) s.value();
    for (TensorId up = t; up >= 0; up = state_[up].parent)  // x[n:] begins somewhere else in each call
      for (const ViewStep& step : state_[up].steps)
        if (step.op == Op::slice) std::get<Syms>(step.attrs.find("start")->second)[0].value();
  }

  TensorOut fresh_output(TensorId id, TensorOut o) {
    o.kind = TensorOut::Kind::Fresh;
    o.index = static_cast<int>(out_.graph->outputs.size());
    Value* v = read(id);
    Type want = type_of(id);
    // A value that is an input, a view or already an output with other strides needs memory of its own.
    bool own = v->def && graph::op_info(v->def->op).kind != graph::OpKind::View && v->type == want;
    for (const auto& existing : out_.graph->outputs) own = own && existing.value != v;
    if (!own) v = copied(v, want);
    out_.graph->outputs.push_back({v, -1});
    return o;
  }
  /// Right behind what makes it: in a graph of layers, within its layer.
  Value* copied(Value* v, const Type& want) {
    graph::Node* next = nullptr;
    if (v->def)
      if (auto at = std::next(v->def->position); at != out_.graph->nodes.end()) next = at->get();
    const graph::Loc& loc = v->def ? v->def->loc : loc_;
    return out_.graph->make_typed(Op::cast, {v}, {{"dtype", want.dtype}}, {want}, loc, next)->out();
  }

  /// An in-place view operator: from now on the object of `before` is what `after` describes.
  void became(TensorId before, TensorId after, const Entry& e) {
    if (written_arguments(e).empty()) return;
    auto [object, first] = object_of_.try_emplace(before, before);
    now_[object->second] = after;
    object_of_[after] = object->second;
  }

  void reshaped_inputs() {
    for (const auto& [object, now] : now_) {
      const TensorInfo &first = tape_.tensors[object], &last = tape_.tensors[now];
      if (first.input < 0 || is_constant(object)) continue;  // a constant is nobody's argument
      if (first.sizes == last.sizes && first.strides == last.strides && first.offset == last.offset) continue;
      const Type shown = type_of(now);
      out_.reshaped.push_back(
          {TensorOut::Kind::InputView, first.input, shown.sizes, shown.strides, offset_in(now, object)});
    }
  }

  void write_back() {
    for (TensorId id : tape_.inputs) {
      const StorageState& s = storage(id);
      if (s.version == 0 || s.root != id || is_constant(id)) continue;
      int graph_input = -1;
      for (size_t i = 0; i < out_.inputs.size(); ++i)
        if (out_.inputs[i] == tape_.tensors[id].input) graph_input = static_cast<int>(i);
      out_.graph->inputs[graph_input].kind = InputKind::Arg;  // changes from call to call by itself
      out_.graph->outputs.push_back({state_[id].value, graph_input});
    }
  }

  const Tape& tape_;
  const LowerOptions& options_;
  Sizes& sizes_;
  std::vector<TensorState> state_;
  std::vector<StorageState> storages_;
  std::map<TensorId, TensorId>
      object_of_;                     // tensors whose geometry changed in place: id -> the object's first id
  std::map<TensorId, TensorId> now_;  // the object's first id -> its last one
  Lowered out_;
  std::vector<graph::Loc> locs_;  // by the tape's
  graph::Loc loc_;
  const graph::Node* last_checked_ = nullptr;  // by rule_out_nothing
  // Calls that found sizes out, by what they were given, and what they gave.
  std::map<std::pair<std::string, std::vector<Value*>>, std::vector<TensorId>> found_;
  std::unordered_map<TensorId, Value*> found_values_;
};

}  // namespace

Lowered functionalize(const Tape& tape, const std::vector<TensorId>& wanted, const LowerOptions& options,
                      Sizes& sizes) {
  return Functionalizer(tape, options, sizes).run(wanted);
}

}  // namespace bolt::autograd

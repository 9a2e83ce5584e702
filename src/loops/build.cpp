// loops/build.cpp
#include "loops/build.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "loops/finish.h"
#include "loops/index_number.h"
#include "loops/kernel_ops.h"
#include "loops/scalar.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::loops {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;
using S = ScalarOp;

constexpr int kMaxRebuilds = 12;

ReduceOp reduce_op_of(Op op) {
  switch (op) {
    case Op::sum: return ReduceOp::Sum;
    case Op::prod: return ReduceOp::Prod;
    case Op::amax: return ReduceOp::Max;
    case Op::amin: return ReduceOp::Min;
    case Op::any: return ReduceOp::Any;
    case Op::all: return ReduceOp::All;
    case Op::argmax: return ReduceOp::ArgMax;
    case Op::argmin: return ReduceOp::ArgMin;
    default: BOLT_CHECK(false, graph::op_info(op).name, " is no reduction");
  }
  return ReduceOp::Sum;
}

/// Computed index terms stand in an Index as symbols; they are taken out when an address is made.
Sym computed_symbol(ExprId id) { return symbol_of({SymbolKind::computed, id, -1}); }
ExprId computed_id(Sym s) {
  return s.is_const() || !is_kind(*s.node(), SymbolKind::computed) ? kNone : s.node()->what.of;
}
bool has_computed(Sym s) { return holds_kind(s, SymbolKind::computed); }

class Builder {
 public:
  Builder(const BuildInput& in, const Group& group, Space& space)
      : in_(in), group_(group), space_(space), list_(space) {
    for (const Node* n : group.nodes) member_[n->out()->id] = true;
  }

  /// One try. True: `split` says which atom to split before the next one.
  bool wants_split() const { return split_.has_value(); }
  Space::Split split() const { return *split_; }
  bool failed() const { return failed_; }

  DraftKernel run() {
    DraftKernel d;
    for (const Value* v : group_.stored) {
      if (v->def && graph::op_info(v->def->op).kind == OpKind::Scatter) {
        d.stores.push_back(scatter(*v->def));
        continue;
      }
      const Index index = *space_.find(v);
      ExprId value = narrowed(eval(v, index, kNone), moved_as(v->type.dtype));
      Address at = address(v, index);
      d.stores.push_back({buffer(v, BufferRole::Out), at.index, value, at.gather, kNone});
    }
    d.exprs = list_.all();
    d.buffers = std::move(buffers_);
    d.values = std::move(values_);
    return d;
  }

 private:
  struct Address {
    Sym index;
    std::vector<GatherTerm> gather;
  };
  struct Evaluated {
    Index index;
    ExprId mask, id;
  };

  // ---- values ----

  ExprId eval(const Value* v, const Index& index, ExprId mask) {
    auto& known = memo_[v->id];
    for (const Evaluated& k : known)
      if (k.mask == mask && k.index == index) return k.id;
    ExprId id = compute(v, index, mask);
    memo_[v->id].push_back({index, mask, id});
    return id;
  }

  ExprId compute(const Value* v, const Index& index, ExprId mask) {
    if (v == in_.acc) return accumulator(v, index, mask);
    bool mine = v->def && member_.count(v->def->out()->id);
    if (!mine && (!v->def || in_.usage.materialized[v->id])) return load(v, index, mask);
    const Node& n = *v->def;
    bool free = in_.usage.role_of(&n) == Role::Free;
    BOLT_CHECK(mine || free, "kernel reads %", v->id, " (", graph::op_info(n.op).name,
               "), which is stored nowhere");
    switch (graph::op_info(n.op).kind) {
      case OpKind::View: return eval(n.operands[0], view_up(n, index), mask);
      case OpKind::Pointwise: return rounded(pointwise(n, index, mask), v);
      case OpKind::Create: return create(n, index);
      case OpKind::Reduce: return rounded(reduce(n, index), v);
      case OpKind::Scan: return rounded(scan(n, index), v);
      case OpKind::Index: return rounded(indexed(n, index, mask), v);
      default: BOLT_CHECK(false, graph::op_info(n.op).name, " in a kernel");
    }
    return kNone;
  }

  ExprId pointwise(const Node& n, const Index& index, ExprId mask) {
    std::vector<ExprId> args;
    for (const Value* o : n.operands) args.push_back(eval(o, broadcast_up(o->type, index), mask));
    return expand_pointwise(list_, n, args);
  }

  ExprId accumulator(const Value* v, const Index& index, ExprId mask) {
    const Index* place = space_.find(v);
    if (!place || *place != index || mask != kNone) failed_ = true;
    Expr e{};
    e.kind = ExprKind::Acc;
    e.dtype = compute_type(v->type.dtype);
    return rounded(list_.add(e), v);
  }

  // ---- roundings of eager's, where they are kept ----

  /// What others read of v, as if it had been stored. Numbers among operands are no values of v's: they take
  /// part in arithmetic as they are.
  ExprId rounded(ExprId id, const Value* v) {
    const DType t = v->type.dtype;
    if (!in_.rounds_as_eager || !is_half(t) || list_[id].dtype == DType::Bool || holds(list_.all(), id, t))
      return id;
    return list_.cast(compute_type(t), list_.cast(t, id));
  }
  /// As it is stored. What has been rounded already is not rounded again.
  ExprId narrowed(ExprId id, DType t) {
    const Expr& e = list_[id];
    if (in_.rounds_as_eager && is_half(t) && e.kind == ExprKind::Cast && list_[e.args[0]].dtype == t)
      return e.args[0];
    return list_.cast(t, id);
  }
  ExprId load(const Value* v, const Index& index, ExprId mask) {
    Address at = address(v, index);
    Expr e{};
    e.kind = ExprKind::Load;
    e.dtype = moved_as(v->type.dtype);
    e.buffer = buffer(v, BufferRole::In);
    e.index = at.index;
    e.gather = std::move(at.gather);
    e.mask = mask != kNone && may_leave(v, index) ? mask : kNone;
    return list_.cast(compute_type(e.dtype), list_.add(e));
  }

  /// Can the index lie outside of the value where the mask is false? A bias under a pad need no mask.
  static bool may_leave(const Value* v, const Index& index) {
    for (size_t i = 0; i < index.size(); ++i) {
      if (index[i].is_const() && v->type.sizes[i].is_const()) {
        if (index[i].value() >= 0 && index[i].value() < v->type.sizes[i].value()) continue;
        return true;
      }
      int64_t upper = upper_bound(index[i]);
      bool inside = v->type.sizes[i].is_const() && upper > 0 && upper <= v->type.sizes[i].value();
      if (!inside || lower_bound(index[i]) < 0) return true;
    }
    return false;
  }

  /// Where it is read. Null: the result is used at another place than where this kernel computes it.
  const Index* operand_of(const Node& n, const Index& index) {
    const Index *place = space_.find(n.out()), *operand = space_.find(n.operands[0]);
    failed_ |= !place || !operand || *place != index;
    return failed_ ? nullptr : operand;
  }

  ExprId reduce(const Node& n, const Index& index) {
    const Index* operand = operand_of(n, index);
    if (!operand) return constant(n.out()->type.dtype, 0);
    ReduceOp op = reduce_op_of(n.op);
    ExprId x = eval(n.operands[0], Index(*operand), kNone);
    if (op == ReduceOp::Any || op == ReduceOp::All) x = list_.cast(DType::Bool, x);
    uint32_t over = list_[x].dims & space_.reduced;
    const bool arg = op == ReduceOp::ArgMax || op == ReduceOp::ArgMin;
    if (over == 0 && arg) return list_.integer(DType::I64, 0);
    if (over == 0) return constant_over(op, x, space_.reduced);
    Expr e{};
    e.kind = ExprKind::Reduce;
    e.reduce_op = op;
    e.args = {x};
    e.reduce_dims = over;
    e.dtype = arg ? DType::I64 : list_[x].dtype;
    return constant_over(op, list_.add(std::move(e)), space_.reduced & ~over);
  }

  ExprId scan(const Node& n, const Index& index) {
    const Index* operand = operand_of(n, index);
    if (!operand) return constant(n.out()->type.dtype, 0);
    Expr e{};
    e.kind = ExprKind::Scan;
    e.reduce_op = *reduce_op_from_name(n.attr<std::string>("op"));
    e.args = {eval(n.operands[0], Index(*operand), kNone)};
    e.reduce_dims = space_.reduced;
    e.dtype = list_[e.args[0]].dtype;
    return list_.add(std::move(e));
  }

  /// Where an element goes to is a computed term also where it is arithmetic on loop variables: points that
  /// differ in what is left of the address never meet (kernel.h).
  Store scatter(const Node& n) {
    const Value *out = n.out(), *numbers = n.operands[1], *x = n.operands[2];
    const auto dim = static_cast<size_t>(sym_attr(n, "dim").value());
    Index to = *space_.find(numbers);
    const Sym at = place(numbers, to, out->type.sizes[dim], kNone);
    to[dim] = has_computed(at) ? at : computed_symbol(index_value(at));
    const ExprId value = narrowed(eval(x, Index(*space_.find(x)), kNone), moved_as(out->type.dtype));
    Address a = address(out, to);
    const Into into = *into_from_name(n.attr<std::string>("op"));
    return {buffer(out, BufferRole::InOut), a.index, value, std::move(a.gather), kNone, into};
  }

  /// The reduction of x over atoms it does not vary over.
  ExprId constant_over(ReduceOp op, ExprId x, uint32_t atoms) {
    if (!atoms) return x;
    Sym count = 1;
    for (size_t i = 0; i < space_.atoms.size(); ++i)
      if (atoms >> i & 1) count *= space_.atoms[i].size;
    DType t = list_[x].dtype;
    ExprId all = x;  // of an argmax too: its one dimension is a single atom
    if (op == ReduceOp::Sum || op == ReduceOp::Prod)
      all = list_.op(op == ReduceOp::Sum ? S::mul : S::pow, {x, list_.cast(t, list_.index(count))});
    if (lower_bound(count) > 0) return all;
    // Eager refuses the maximum of nothing, but not all that is made of one.
    const bool none_is_one = op == ReduceOp::Prod || op == ReduceOp::All;
    if (op != ReduceOp::Sum && op != ReduceOp::Any && !none_is_one) return all;
    const ExprId none = constant(t, none_is_one ? 1 : 0);
    if (count.is_const()) return none;
    return list_.op(S::where,
                    {list_.op(S::eq, {list_.index(count), list_.integer(DType::I64, 0)}), none, all});
  }

  // ---- creation ----

  ExprId constant(DType t, double v) {
    t = compute_type(moved_as(t));
    if (t == DType::Bool) return list_.integer(t, v != 0);  // 0.5 and 2 are true
    return is_float(t) ? list_.real(t, v) : list_.integer(t, static_cast<int64_t>(v));
  }

  ExprId number(const Node& n, std::string_view name, DType t) {
    const graph::Attr& a = n.attrs.find(name)->second;
    DType c = compute_type(moved_as(t));
    if (const double* v = std::get_if<double>(&a)) return constant(t, *v);
    if (const bool* v = std::get_if<bool>(&a)) return constant(t, *v);
    Sym s = sym_attr(n, name);
    if (!s.is_const()) return list_.cast(c, list_.index(s));
    if (is_float(c)) return list_.real(c, static_cast<double>(s.value()));
    return list_.integer(c, c == DType::Bool ? s.value() != 0 : s.value());
  }

  ExprId create(const Node& n, const Index& index) {
    DType t = n.out()->type.dtype;
    if (n.op != Op::iota) return number(n, "value", t);
    bool fraction = std::holds_alternative<double>(n.attrs.find("start")->second) ||
                    std::holds_alternative<double>(n.attrs.find("step")->second);
    DType c = compute_type(t);
    if (!fraction) {
      Sym at = sym_attr(n, "start") + index[0] * sym_attr(n, "step", 1);
      return list_.cast(c, index_value(at));
    }
    // As ATen: in double, rounded once.
    ExprId i = list_.cast(DType::F64, index_value(index[0]));
    ExprId scaled = list_.op(S::mul, {i, number(n, "step", DType::F64)});
    return list_.cast(c, list_.op(S::add, {scaled, number(n, "start", DType::F64)}));
  }

  // ---- computed and conditional indices ----

  ExprId indexed(const Node& n, const Index& index, ExprId mask) {
    switch (n.op) {
      case Op::cat: return cat(n, index, mask);
      case Op::pad: return pad(n, index, mask);
      case Op::slice_scatter: return slice_scatter(n, index, mask);
      case Op::embedding: return embedding(n, index, mask);
      case Op::gather: {
        int dim = static_cast<int>(sym_attr(n, "dim").value());
        return select(n.operands[0], dim, n.operands[1], index, index, mask);
      }
      case Op::index_select: {
        int dim = static_cast<int>(sym_attr(n, "dim").value());
        return select(n.operands[0], dim, n.operands[1], {index[dim]}, index, mask);
      }
      case Op::upsample_nearest: return upsample(n, index, mask);
      default: throw_unsupported("no kernel form of ", graph::op_info(n.op).name);
    }
  }

  /// b8: a < b, or kNone where that is certain. A split index is compared by its outer part alone.
  ExprId less(Sym a, Sym b) {
    Sym d = b - a;
    if (lower_bound(d) > 0) return kNone;
    if (upper_bound(d) != 0 && upper_bound(d) <= 1) return list_.integer(DType::Bool, 0);
    if (b.is_const() && !a.is_const()) {
      int64_t shift = 0;
      std::vector<SymTerm> terms = sum_terms(a, &shift);
      int64_t bound = b.value() - shift;
      for (const SymTerm& t : terms) {
        // a = coef * (a // coef) + a % coef, and bound is a multiple of coef.
        if (t.coef <= 1 || bound % t.coef) continue;
        return list_.op(S::lt, {index_value(floordiv(a - Sym(shift), t.coef)),
                                list_.integer(DType::I64, bound / t.coef)});
      }
      return list_.op(S::lt, {index_value(a - Sym(shift)), list_.integer(DType::I64, bound)});
    }
    return list_.op(S::lt, {index_value(a), index_value(b)});
  }
  ExprId not_less(Sym a, Sym b) {
    ExprId lt = less(a, b);
    if (lt == kNone) return list_.integer(DType::Bool, 0);
    if (is_false(lt)) return kNone;
    return list_.op(S::logical_not, {lt});
  }
  bool is_false(ExprId id) const {
    return id != kNone && list_[id].kind == ExprKind::Const && list_[id].ivalue == 0;
  }
  ExprId choose(ExprId condition, ExprId yes, ExprId no) {
    return condition == kNone ? yes : list_.op(S::where, {condition, yes, no});
  }

  ExprId cat(const Node& n, const Index& index, ExprId mask) {
    int dim = static_cast<int>(sym_attr(n, "dim").value());
    split_at_pieces(n, dim, index[dim]);
    Syms start = {0};
    for (const Value* o : n.operands) start.push_back(start.back() + o->type.sizes[dim]);
    ExprId result = kNone;
    for (size_t i = n.operands.size(); i-- > 0;) {
      ExprId below_end = i + 1 == n.operands.size() ? kNone : less(index[dim], start[i + 1]);
      ExprId from_start = i == 0 ? kNone : not_less(index[dim], start[i]);
      if (is_false(below_end) || is_false(from_start)) continue;
      Index at = index;
      at[dim] = index[dim] - start[i];
      ExprId piece_mask = list_.land(mask, list_.land(below_end, from_start));
      ExprId piece = read_in_its_rounds(eval(n.operands[i], at, piece_mask), piece_mask);
      result = result == kNone ? piece : choose(below_end, piece, result);
    }
    return result == kNone ? constant(n.out()->type.dtype, 0) : result;
  }

  /// A part that is only moved, and runs through loops within those which part it is depends on: in rounds of
  /// the others it is not read.
  ExprId read_in_its_rounds(ExprId part, ExprId mask) {
    Expr read = list_[part];
    if (read.kind == ExprKind::Cast) return list_.cast(read.dtype, read_in_its_rounds(read.args[0], mask));
    if (read.kind != ExprKind::Load || read.mask != kNone || mask == kNone) return part;
    const uint32_t around = list_[mask].dims, own = read.dims;
    if (around == 0 || own == 0 || around >= (own & (~own + 1))) return part;
    read.mask = mask;
    return list_.add(std::move(read));
  }

  /// rotate_half: cut the loop where the pieces meet, so that which piece it is does not change in the inner
  /// part.
  void split_at_pieces(const Node& n, int dim, Sym at) {
    int64_t inner = 0;
    for (const Value* o : n.operands) {
      if (!o->type.sizes[dim].is_const()) return;
      inner = std::gcd(inner, o->type.sizes[dim].value());
    }
    for (size_t i = 0; i < space_.atoms.size(); ++i) {
      const Atom& a = space_.atoms[i];
      bool cuts = a.symbol == at && a.size.is_const() && inner >= 8 && inner < a.size.value();
      if (cuts && a.size.value() % inner == 0 && !a.locked) want({static_cast<int>(i), inner});
    }
  }

  ExprId pad(const Node& n, const Index& index, ExprId mask) {
    const auto& low = n.attr<Syms>("low");
    const graph::Type& type = n.operands[0]->type;
    Index at = index;
    ExprId inside = kNone;
    for (size_t d = 0; d < index.size(); ++d) {
      at[d] = index[d] - low[d];
      if (at[d] == index[d] && n.out()->type.sizes[d] == type.sizes[d]) continue;
      inside = list_.land(inside, not_less(at[d], 0));
      inside = list_.land(inside, less(at[d], type.sizes[d]));
    }
    ExprId fill = number(n, "value", n.out()->type.dtype);
    if (is_false(inside)) return fill;
    const ExprId guard = list_.land(mask, inside), there = eval(n.operands[0], at, guard);
    if (const ExprId read = read_or(there, guard, list_[fill]); read != kNone) return read;
    return choose(inside, there, fill);
  }
  /// A guarded read, perhaps widened, as one that gives the number where it reads nothing. kNone: it is
  /// something else, or of a type that may not have this number.
  ExprId read_or(ExprId there, ExprId guard, const Expr& number) {
    Expr read = list_[there];
    if (read.kind == ExprKind::Cast && is_float(read.dtype) && is_float(list_[read.args[0]].dtype)) {
      const ExprId narrow = read_or(read.args[0], guard, number);
      return narrow == kNone ? kNone : list_.cast(read.dtype, narrow);
    }
    if (read.kind != ExprKind::Load || guard == kNone || read.mask != guard || number.kind != ExprKind::Const)
      return kNone;
    const double value = is_float(number.dtype) ? number.value : static_cast<double>(number.ivalue);
    if (value != 0 && !std::isinf(value)) return kNone;
    read.fill = value;
    return list_.add(std::move(read));
  }

  ExprId slice_scatter(const Node& n, const Index& index, ExprId mask) {
    int dim = static_cast<int>(sym_attr(n, "dim").value());
    Sym start = sym_attr(n, "start"), step = sym_attr(n, "step", 1);
    Sym length = n.operands[1]->type.sizes[dim];
    Sym off = index[dim] - start;
    ExprId inside = list_.land(not_less(off, 0), less(off, length * step));
    Index at = index;
    at[dim] = step.is_const(1) ? off : floordiv(off, step);
    if (!step.is_const(1)) {
      ExprId hit = list_.op(S::eq, {index_value(mod(off, step)), list_.integer(DType::I64, 0)});
      inside = list_.land(inside, hit);
    }
    if (is_false(inside)) return eval(n.operands[0], index, mask);
    ExprId written = eval(n.operands[1], at, list_.land(mask, inside));
    return inside == kNone ? written : choose(inside, written, eval(n.operands[0], index, mask));
  }

  ExprId embedding(const Node& n, const Index& index, ExprId mask) {
    const graph::Type& ids = n.operands[1]->type;
    Index id_index(index.begin(), index.begin() + ids.rank());
    Index row(index.begin() + ids.rank() - 1, index.end());  // [0] is replaced by the row
    if (ids.rank() == 0) {
      row.assign(1, Sym(0));
      row.insert(row.end(), index.begin(), index.end());
    }
    return select(n.operands[0], 0, n.operands[1], id_index, row, mask);
  }

  /// x at `index` with entry `dim` replaced by what `numbers` holds at `at`. What is index arithmetic that
  /// cannot leave x is part of the address. Any other number is checked: no address outside is ever touched,
  /// and the program learns of it. Only what is asked for is checked: an index that a slice drops or nobody
  /// reads is not looked at, where eager looks at all of them.
  ExprId select(const Value* x, int dim, const Value* numbers, const Index& at, Index index, ExprId mask) {
    ExprId check = kNone;
    index[dim] = place(numbers, at, x->type.sizes[dim], mask, &check);
    const ExprId value = eval(x, index, mask);
    return check == kNone || rests_on(value, check) ? value : behind(check, value);
  }
  /// What is the same everywhere (ones that the region makes) is read nowhere, but an index outside of it is
  /// an error all the same: the value is made to wait for the check.
  ExprId behind(ExprId check, ExprId value) {
    const Expr e = list_[value];
    const bool is_one = e.kind == ExprKind::Const && (is_float(e.dtype) ? e.value == 1 : e.ivalue == 1);
    const ExprId other = constant(e.dtype, is_one ? 0 : 1);
    const ExprId inside = list_.op(S::ge, {check, list_.integer(DType::I64, 0)});
    return list_.op(S::where, {inside, value, other});
  }
  bool rests_on(ExprId value, ExprId on) const {
    std::vector<char> rests(static_cast<size_t>(std::max(value, on)) + 1, 0);
    rests[static_cast<size_t>(on)] = 1;
    auto is_it = [&](ExprId id) { return id != kNone && rests[id]; };
    for (ExprId id = on + 1; id <= value; ++id) {
      const Expr& e = list_[id];
      rests[id] =
          is_it(e.mask) || std::any_of(e.args.begin(), e.args.end(), is_it) ||
          std::any_of(e.gather.begin(), e.gather.end(), [&](const GatherTerm& g) { return is_it(g.value); });
    }
    return is_it(value);
  }
  /// `check`: the expression that looks at it, where one does.
  Sym place(const Value* numbers, const Index& at, Sym size, ExprId mask, ExprId* check = nullptr) {
    if (size.is_const(0)) throw_unsupported("an index into a dimension of size 0");
    if (auto known = index_number(numbers, at); known && lies_inside(*known, size)) return *known;
    const ExprId number = eval(numbers, at, mask);
    Expr e{};
    e.kind = ExprKind::Check;
    e.dtype = DType::I64;
    e.args = {list_.cast(DType::I64, number),
              size.is_const() ? list_.integer(DType::I64, size.value()) : index_value(size)};
    e.mask = mask;
    const ExprId made = list_.add(std::move(e));
    if (check) *check = made;
    return computed_symbol(made);
  }

  static bool lies_inside(Sym place, Sym size) {
    if (lower_bound(place) < 0) return false;
    const int64_t upper = upper_bound(place);
    return size.is_const() ? upper > 0 && upper <= size.value() : lower_bound(size - place) > 0;
  }

  ExprId upsample(const Node& n, const Index& index, ExprId mask) {
    const graph::Type& from = n.operands[0]->type;
    const graph::Type& to = n.out()->type;
    const auto* scales = n.has_attr("scales") ? &n.attr<std::vector<double>>("scales") : nullptr;
    Index at = index;
    size_t first = index.size() - (scales ? scales->size() : n.attr<Syms>("sizes").size());
    for (size_t d = first; d < index.size(); ++d) {
      bool known = from.sizes[d].is_const() && to.sizes[d].is_const();
      double scale = scales ? (*scales)[d - first] : 0;
      if (scale <= 0 && known)
        scale = static_cast<double>(from.sizes[d].value()) / static_cast<double>(to.sizes[d].value());
      int64_t ratio = scale > 0 ? static_cast<int64_t>(1 / scale + 0.5) : 0;
      if (scale == 1) continue;
      if (ratio > 0 && scale * static_cast<double>(ratio) == 1) {
        at[d] = min_size(floordiv(index[d], ratio), from.sizes[d]);
        continue;
      }
      if (scale <= 0) throw_unsupported("upsample_nearest of unknown scale");
      ExprId i = list_.cast(DType::F32, index_value(index[d]));
      ExprId source =
          list_.op(S::floor, {list_.op(S::mul, {i, list_.real(DType::F32, static_cast<float>(scale))})});
      ExprId clamped = list_.op(S::minimum, {list_.cast(DType::I64, source), index_value(from.sizes[d] - 1)});
      at[d] = computed_symbol(clamped);
    }
    return eval(n.operands[0], at, mask);
  }
  static Sym min_size(Sym at, Sym size) {
    int64_t upper = upper_bound(at);
    if (size.is_const() && upper > 0 && upper <= size.value()) return at;
    return min(at, size - 1);
  }

  // ---- addresses ----

  int buffer(const Value* v, BufferRole role) {
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i] == v && buffers_[i].role == role) return static_cast<int>(i);
    values_.push_back(v);
    buffers_.push_back({moved_as(v->type.dtype), role, v->name});
    return static_cast<int>(values_.size()) - 1;
  }

  Address address(const Value* v, const Index& index) {
    const Syms& strides = in_.strides[v->id];
    BOLT_CHECK(strides.size() == index.size(), "no memory layout for %", v->id);
    Sym at = 0;
    for (size_t i = 0; i < index.size(); ++i)
      if (!index[i].is_const(0)) at += index[i] * strides[i];
    return lower(at);
  }

  Address lower(Sym at) {
    if (!split_)
      if (auto s = space_.find_split(at)) want(*s);
    if (!has_computed(at)) return {at, {}};
    Address out{0, {}};
    int64_t constant = 0;
    for (const SymTerm& t : sum_terms(at, &constant)) {
      if (!has_computed(t.term)) {
        out.index += t.term * Sym(t.coef);
        continue;
      }
      // One computed factor times sizes; anything else (a division of a computed number) becomes arithmetic.
      Sym rest = t.coef;
      ExprId id = kNone;
      bool simple = true;
      Syms factors = t.term.node()->op == SymOp::Mul ? t.term.node()->args : Syms{t.term};
      for (Sym f : factors) {
        if (!has_computed(f))
          rest *= f;
        else if (id != kNone || computed_id(f) == kNone)
          simple = false;
        else
          id = computed_id(f);
      }
      if (simple && space_.mask(rest) == 0)
        out.gather.push_back({id, rest});
      else
        out.gather.push_back({arithmetic(t.term), t.coef});
    }
    out.index += constant;
    return out;
  }

  /// The number an index is, as an i64 expression.
  ExprId index_value(Sym s) {
    if (!split_)
      if (auto split = space_.find_split(s)) want(*split);
    return has_computed(s) ? arithmetic(s) : list_.index(s);
  }

  ExprId arithmetic(Sym s) {
    if (!has_computed(s)) return list_.index(s);
    if (ExprId id = computed_id(s); id != kNone) return id;
    const SymNode& n = *s.node();
    static constexpr S ops[] = {S::add, S::add, S::mul, S::floor_div, S::remainder, S::minimum, S::maximum};
    ExprId r = arithmetic(n.args[0]);
    for (size_t i = 1; i < n.args.size(); ++i)
      r = list_.op(ops[static_cast<int>(n.op)], {r, arithmetic(n.args[i])});
    return r;
  }

  void want(Space::Split s) {
    if (!split_) split_ = s;
  }

  const BuildInput& in_;
  const Group& group_;
  Space& space_;
  ExprList list_;
  std::unordered_map<int, bool> member_;
  std::unordered_map<int, std::vector<Evaluated>> memo_;
  std::vector<Buffer> buffers_;
  std::vector<const Value*> values_;
  std::optional<Space::Split> split_;
  bool failed_ = false;
};

}  // namespace

std::optional<BuiltKernel> build_kernel(const BuildInput& in, const Group& group) {
  std::optional<Space> space = align(in.usage, group);
  if (!space || (in.acc && !space->run_along(in.acc))) return std::nullopt;
  for (int round = 0;; ++round) {
    Builder b(in, group, *space);
    DraftKernel draft = b.run();
    if (b.wants_split() && round < kMaxRebuilds && space->atoms.size() < 24) {
      space->split(b.split());
      continue;
    }
    if (b.failed()) return std::nullopt;
    return finish(std::move(*space), std::move(draft), in, group);
  }
}

}  // namespace bolt::loops

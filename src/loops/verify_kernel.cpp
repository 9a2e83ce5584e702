// loops/verify_kernel.cpp
// What holds in every kernel between stages:
//
//   1. Operands, gather terms and masks of an expression stand before it; counts fit the operation.
//   2. Operands of an operation have one dtype (`where`: b8, then two alike) and the result's follows from
//   them.
//   3. Arithmetic is never in bf16, f16 or complex; gather terms are i64, masks b8.
//   4. A load has its buffer's dtype and reads an `in` or `inout` buffer; a store has it and writes `out` or
//   `inout`.
//   5. Index symbols are dimensions of the space or listed in `symbols`; sizes hold listed symbols only.
//   6. A reduction runs over dimensions that are marked `reduce` and that its operand varies over; argmax and
//   argmin
//      over exactly one; any and all are of b8. Each marked dimension has a reduction or a scan.
//   7. A stored value varies only over dimensions its index varies over, those of size 1 aside (else one
//   address would get many values).
//   8. Each `out` buffer is stored to. `Expr::dims` is what the operands say. At most 31 dimensions.
//   9. `acc` only where nothing is reduced.
//  10. A scan runs along one marked dimension, and no kernel both scans and reduces. What is scattered may
//  vary over
//      more dimensions than its index; its buffer is `inout`, has no other store and no load.
//  11. A check is of an i64 against an i64 that does not vary.
//
// Not checked: that addresses lie in their buffers, and that two points never store to one address.
#include <algorithm>

#include "loops/kernel.h"
#include "loops/kernel_ops.h"
#include "support/error.h"

namespace bolt::loops {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& k) : k_(k) {}

  void run() {
    BOLT_CHECK(k_.dims.size() < 32, "kernel @", k_.name, ": more than 31 dimensions");
    for (const Dim& d : k_.dims) symbols(d.size, "a size", false);
    for (at_ = 0; at_ < static_cast<int>(k_.exprs.size()); ++at_) expr(k_.exprs[at_]);
    for (at_ = 0; at_ < static_cast<int>(k_.stores.size()); ++at_) store(k_.stores[at_]);
    for (size_t i = 0; i < k_.dims.size(); ++i)
      check(!k_.dims[i].reduce || (reduced_ >> i & 1), "dimension d", i,
            " is marked reduce and never reduced");
    for (size_t i = 0; i < k_.buffers.size(); ++i)
      check(k_.buffers[i].role == BufferRole::In || stored(static_cast<int>(i)), "buffer b", i,
            " is never stored to");
    check(!has_acc_ || !reduced_, "an accumulator beside a reduction");
    check(!has_scan_ || !has_reduction_, "a scan beside a reduction");
  }

 private:
  template <typename... Parts>
  void check(bool ok, const Parts&... parts) {
    if (ok) return;
    BOLT_CHECK(ok, "kernel @", k_.name, ", ", in_store_ ? "store " : "%", at_, ": ",
               detail::concat(parts...));
  }

  void operand(ExprId id, const char* what) {
    int limit = in_store_ ? static_cast<int>(k_.exprs.size()) : at_;
    check(id >= 0 && id < limit, what, " %", id, " does not stand before its use");
  }

  void symbols(Sym s, const char* what, bool loop_variables) {
    Syms found;
    collect_symbols(s, &found);
    for (Sym x : found) {
      bool listed = std::find(k_.symbols.begin(), k_.symbols.end(), x) != k_.symbols.end();
      check(listed || (loop_variables && k_.varies(x)), "unknown symbol ", x.str(), " in ", what);
    }
  }

  void access(int buffer, Sym index, const std::vector<GatherTerm>& gather, ExprId mask,
              BufferRole forbidden) {
    check(buffer >= 0 && buffer < static_cast<int>(k_.buffers.size()), "no buffer b", buffer);
    check(k_.buffers[buffer].role != forbidden, "b", buffer, " is used against its role");
    symbols(index, "an index", true);
    for (const GatherTerm& g : gather) {
      operand(g.value, "gather term");
      check(k_.exprs[g.value].dtype == DType::I64, "gather term %", g.value, " is not i64");
      symbols(g.coef, "a gather coefficient", false);
    }
    this->mask(mask);
  }
  void mask(ExprId id) {
    if (id == kNone) return;
    operand(id, "mask");
    check(k_.exprs[id].dtype == DType::Bool, "mask %", id, " is not b8");
  }

  void expr(const Expr& e) {
    for (ExprId a : e.args) operand(a, "operand");
    switch (e.kind) {
      case ExprKind::Const: break;
      case ExprKind::Index:
        symbols(e.index, "an index", true);
        check(e.dtype == DType::I64, "index is not i64");
        break;
      case ExprKind::Load:
        access(e.buffer, e.index, e.gather, e.mask, BufferRole::Out);
        check(e.dtype == k_.buffers[e.buffer].dtype, "load has not its buffer's dtype");
        break;
      case ExprKind::Op: operation(e); break;
      case ExprKind::Cast: check(e.args.size() == 1, "cast takes one operand"); break;
      case ExprKind::Reduce: reduction(e); break;
      case ExprKind::Scan: scan(e); break;
      case ExprKind::Check: bounds_check(e); break;
      case ExprKind::Acc: has_acc_ = true; break;
    }
    check(!((e.dims ^ dims_of(k_, e)) & longer_than_one()), "wrong dimension mask");
  }

  void operation(const Expr& e) {
    check(static_cast<int>(e.args.size()) == scalar_op_arity(e.op), "wrong number of operands");
    std::vector<DType> types;
    for (ExprId a : e.args) types.push_back(k_.exprs[a].dtype);
    size_t first = e.op == ScalarOp::where ? 1 : 0;
    if (first) check(types[0] == DType::Bool, "condition is not b8");
    for (size_t i = first; i < types.size(); ++i) {
      check(types[i] == types[first], "operands of several dtypes");
      check(compute_type(types[i]) == types[i] && !is_opaque(types[i]), "arithmetic in a storage dtype");
    }
    check(e.dtype == op_result_dtype(e.op, types), "result dtype does not follow from the operands");
  }

  void bounds_check(const Expr& e) {
    check(e.args.size() == 2, "check takes an index and a size");
    for (ExprId a : e.args) check(k_.exprs[a].dtype == DType::I64, "%", a, " of a check is not i64");
    check(k_.exprs[e.args[1]].dims == 0, "the size of a check varies");
    mask(e.mask);
  }

  void reduction(const Expr& e) {
    check(e.args.size() == 1, "reduce takes one operand");
    const Expr& x = k_.exprs[e.args[0]];
    check(e.reduce_dims && !(e.reduce_dims & ~x.dims),
          "reduces over a dimension its operand does not vary over");
    check(compute_type(x.dtype) == x.dtype && !is_opaque(x.dtype), "reduction in a storage dtype");
    check(e.dtype == reduce_result_dtype(e.reduce_op, x.dtype),
          "result dtype does not follow from the operand");
    bool single = !(e.reduce_dims & (e.reduce_dims - 1));
    check(single || !is_arg_reduce(e.reduce_op), "arg reduction over several dimensions");
    bool logical = e.reduce_op == ReduceOp::Any || e.reduce_op == ReduceOp::All;
    check(!logical || x.dtype == DType::Bool, "any and all are of b8");
    for (size_t i = 0; i < k_.dims.size(); ++i)
      check(!(e.reduce_dims >> i & 1) || k_.dims[i].reduce, "d", i, " is not marked reduce");
    check(e.reduce_op != ReduceOp::LogAddExp, "a reduction by logaddexp");
    reduced_ |= e.reduce_dims;
    has_reduction_ = true;
  }

  void scan(const Expr& e) {
    check(e.args.size() == 1, "scan takes one operand");
    const DType t = k_.exprs[e.args[0]].dtype;
    check(compute_type(t) == t && !is_opaque(t) && e.dtype == t, "scan in a storage dtype");
    check(e.reduce_dims && !(e.reduce_dims & (e.reduce_dims - 1)), "a scan along other than one dimension");
    for (size_t i = 0; i < k_.dims.size(); ++i)
      check(!(e.reduce_dims >> i & 1) || k_.dims[i].reduce, "d", i, " is not marked reduce");
    reduced_ |= e.reduce_dims;
    has_scan_ = true;
  }

  void store(const Store& s) {
    in_store_ = true;
    operand(s.value, "value");
    access(s.buffer, s.index, s.gather, s.mask, BufferRole::In);
    check(k_.exprs[s.value].dtype == k_.buffers[s.buffer].dtype, "value has not its buffer's dtype");
    if (s.scatters()) return scatter(s);
    uint32_t index_dims = k_.varies(s.index);
    for (const GatherTerm& g : s.gather) index_dims |= k_.exprs[g.value].dims;
    check(!(k_.exprs[s.value].dims & ~index_dims & longer_than_one()),
          "value varies over more dimensions than the index");
  }

  void scatter(const Store& s) {
    check(k_.buffers[s.buffer].role == BufferRole::InOut, "a scatter into a buffer that is not inout");
    const auto stores = std::count_if(k_.stores.begin(), k_.stores.end(),
                                      [&](const Store& other) { return other.buffer == s.buffer; });
    const bool read = std::any_of(k_.exprs.begin(), k_.exprs.end(), [&](const Expr& e) {
      return e.kind == ExprKind::Load && e.buffer == s.buffer;
    });
    check(stores == 1 && !read, "a scatter into a buffer that is used otherwise");
    check(!reduced_, "a scatter beside a reduction or a scan");
    check(!s.combines() || k_.buffers[s.buffer].dtype != DType::Bool, "truth values are combined");
  }

  /// Of the others nothing can be told: no index names a dimension of one element, and an accumulator varies
  /// over it as it is read and not as it is planned.
  uint32_t longer_than_one() const {
    uint32_t mask = 0;
    for (size_t i = 0; i < k_.dims.size(); ++i)
      if (!k_.dims[i].size.is_const(1)) mask |= 1u << i;
    return mask;
  }

  bool stored(int buffer) const {
    return std::any_of(k_.stores.begin(), k_.stores.end(),
                       [&](const Store& s) { return s.buffer == buffer; });
  }

  const Kernel& k_;
  int at_ = 0;
  bool in_store_ = false, has_acc_ = false, has_scan_ = false, has_reduction_ = false;
  uint32_t reduced_ = 0;
};

}  // namespace

void verify(const Kernel& k) { Verifier(k).run(); }

}  // namespace bolt::loops

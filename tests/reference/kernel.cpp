// tests/reference/kernel.cpp
// Runs a kernel the slow and obvious way: every expression becomes an array over the dimensions it varies
// over, filled in SSA order; stores come last, so an `inout` buffer is read as it was before.
//
// Floating values are doubles and are rounded only where the kernel says so: by a cast and by a store.
// Integers are exact and wrap at their width. Integer division by zero gives 0 (no trap).
#include "tests/reference/kernel.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/cell.h"
#include "loops/kernel.h"
#include "loops/kernel_ops.h"
#include "support/error.h"
#include "support/half.h"
#include "support/symbols.h"

namespace bolt::loops {

using graph::round_to;
using graph::wrap_to;

namespace {

/// One value of any dtype: `f` for floating ones, `i` for integers and b8.
struct ScalarCell {
  double f = 0;
  int64_t i = 0;
};

template <typename T>
T read(const void* base, int64_t at) {
  T v;
  std::memcpy(&v, static_cast<const char*>(base) + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}
template <typename T>
void write(void* base, int64_t at, T v) {
  std::memcpy(static_cast<char*>(base) + at * static_cast<int64_t>(sizeof(T)), &v, sizeof(T));
}

ScalarCell load_cell(DType t, const void* base, int64_t at) {
  switch (t) {
    case DType::Bool: return {0, read<uint8_t>(base, at) != 0};
    case DType::U8: return {0, read<uint8_t>(base, at)};
    case DType::I8: return {0, read<int8_t>(base, at)};
    case DType::I16: return {0, read<int16_t>(base, at)};
    case DType::I32: return {0, read<int32_t>(base, at)};
    case DType::I64: return {0, read<int64_t>(base, at)};
    case DType::F16: return {f16_to_float(read<uint16_t>(base, at)), 0};
    case DType::BF16: return {bf16_to_float(read<uint16_t>(base, at)), 0};
    case DType::F32: return {read<float>(base, at), 0};
    case DType::F64: return {read<double>(base, at), 0};
    default: throw_unsupported(dtype_name(t), " in a kernel");
  }
}

void store_cell(DType t, void* base, int64_t at, ScalarCell c) {
  switch (t) {
    case DType::Bool: return write<uint8_t>(base, at, c.i != 0);
    case DType::U8:
    case DType::I8: return write<int8_t>(base, at, static_cast<int8_t>(c.i));
    case DType::I16: return write<int16_t>(base, at, static_cast<int16_t>(c.i));
    case DType::I32: return write<int32_t>(base, at, static_cast<int32_t>(c.i));
    case DType::I64: return write<int64_t>(base, at, c.i);
    case DType::F16: return write<uint16_t>(base, at, float_to_f16(static_cast<float>(c.f)));
    case DType::BF16: return write<uint16_t>(base, at, float_to_bf16(static_cast<float>(c.f)));
    case DType::F32: return write<float>(base, at, static_cast<float>(c.f));
    case DType::F64: return write<double>(base, at, c.f);
    default: throw_unsupported(dtype_name(t), " in a kernel");
  }
}

/// The graph's reference says what each operation gives.
ScalarCell apply(ScalarOp op, DType t, const ScalarCell* x) {
  graph::Cell args[5];
  const bool choice = op == ScalarOp::where;
  for (int i = 0; i < scalar_op_arity(op); ++i) {
    const bool real = is_float(t) && !(choice && i == 0);
    real ? void(args[i].real = x[i].f) : void(args[i].whole = x[i].i);
  }
  const graph::Cell r = graph::scalar_cell(graph_op(op), t, args);
  const bool real = op == ScalarOp::from_bits || op == ScalarOp::random || (is_float(t) && !gives_bool(op));
  return real ? ScalarCell{r.real, 0} : ScalarCell{0, r.whole};
}

ScalarCell cast_cell(DType from, DType to, ScalarCell c) {
  if (to == DType::Bool) return {0, is_float(from) ? c.f != 0 : c.i != 0};
  if (is_float(to)) return {round_to(to, is_float(from) ? c.f : static_cast<double>(c.i)), 0};
  if (!is_float(from)) return {0, wrap_to(to, c.i)};
  bool fits = std::fabs(c.f) < 9.2e18;  // beyond it, and for NaN, C++ leaves the result open
  return {0, wrap_to(to, fits ? static_cast<int64_t>(c.f) : std::numeric_limits<int64_t>::min())};
}

/// A Sym over loop variables with all size symbols known: affine where it can be, which is nearly always.
class IndexFn {
 public:
  IndexFn(const Kernel& k, Sym index, const int64_t* syms) {
    for (size_t i = 0; i < k.dims.size(); ++i) variables_.push_back(Kernel::dim(static_cast<int>(i)));
    index_ = substitute(index, [&](Sym s) {
      for (size_t i = 0; i < k.symbols.size(); ++i)
        if (k.symbols[i] == s) return Sym(syms[i]);
      return s;
    });
    for (const SymTerm& t : sum_terms(index_, &constant_)) {
      const size_t dim = place_in(variables_, *t.term.node());
      if (dim == variables_.size()) affine_ = false;
      terms_.push_back({dim, t.coef});
    }
  }
  int64_t at(const std::vector<int64_t>& point) const {
    if (!affine_) return evaluate(index_, variables_, [&](size_t i) { return point[i]; });
    int64_t v = constant_;
    for (const Term& t : terms_) v += t.coef * point[t.dim];
    return v;
  }

 private:
  struct Term {
    size_t dim;
    int64_t coef;
  };
  Syms variables_;
  Sym index_;
  int64_t constant_ = 0;
  std::vector<Term> terms_;
  bool affine_ = true;
};

class Runner {
 public:
  Runner(const Kernel& k, void* const* buffers, const int64_t* syms) : k_(k), buffers_(buffers), syms_(syms) {
    for (const Dim& d : k.dims) sizes_.push_back(size(d.size));
    values_.resize(k.exprs.size());
  }

  void run() {
    for (size_t i = 0; i < k_.exprs.size(); ++i) expr(static_cast<ExprId>(i));
    for (const Store& s : k_.stores) store(s);
  }

 private:
  int64_t size(Sym s) const {
    return evaluate(s, k_.symbols, [&](size_t i) { return syms_[i]; });
  }

  /// Where the point lies in an array over the dimensions of `mask`.
  int64_t offset(uint32_t mask, const std::vector<int64_t>& point) const {
    int64_t at = 0;
    for (size_t i = 0; i < sizes_.size(); ++i)
      if (mask >> i & 1) at = at * sizes_[i] + point[i];
    return at;
  }
  int64_t count(uint32_t mask) const {
    int64_t n = 1;
    for (size_t i = 0; i < sizes_.size(); ++i)
      if (mask >> i & 1) n *= sizes_[i];
    return n;
  }
  template <typename F>
  void each(uint32_t mask, F&& body) const {
    if (count(mask) == 0) return;
    std::vector<int64_t> point(sizes_.size(), 0);
    while (true) {
      body(point);
      int i = static_cast<int>(sizes_.size()) - 1;
      for (; i >= 0; --i) {
        if (!(mask >> i & 1)) continue;
        if (++point[i] < sizes_[i]) break;
        point[i] = 0;
      }
      if (i < 0) return;
    }
  }
  ScalarCell value(ExprId id, const std::vector<int64_t>& point) const {
    return values_[id][offset(k_.exprs[id].dims, point)];
  }

  void expr(ExprId id) {
    const Expr& e = k_.exprs[id];
    if (e.kind == ExprKind::Reduce) return reduce(id);
    if (e.kind == ExprKind::Scan) return scan(id);
    std::vector<ScalarCell>& out = values_[id];
    out.reserve(count(e.dims));
    IndexFn index(k_, e.index, syms_);
    each(e.dims, [&](const std::vector<int64_t>& p) { out.push_back(point(e, index, p)); });
  }

  ScalarCell point(const Expr& e, const IndexFn& index, const std::vector<int64_t>& p) const {
    switch (e.kind) {
      case ExprKind::Const: return {e.value, e.ivalue};
      case ExprKind::Index: return {0, index.at(p)};
      case ExprKind::Load: {
        if (e.mask != kNone && !value(e.mask, p).i)
          return is_float(e.dtype) ? ScalarCell{e.fill, 0} : ScalarCell{0, static_cast<int64_t>(e.fill)};
        return load_cell(e.dtype, buffers_[e.buffer], address(index, e.gather, p));
      }
      case ExprKind::Op: {
        ScalarCell args[5];
        for (size_t i = 0; i < e.args.size(); ++i) args[i] = value(e.args[i], p);
        return apply(e.op, k_.exprs[e.args.back()].dtype, args);
      }
      case ExprKind::Check: {
        ScalarCell i = value(e.args[0], p), size = value(e.args[1], p);
        if (i.i >= 0 && i.i < size.i) return i;
        if (e.mask == kNone || value(e.mask, p).i) write<int64_t>(buffers_[k_.buffers.size()], 0, 1);
        return {};
      }
      case ExprKind::Cast: return cast_cell(k_.exprs[e.args[0]].dtype, e.dtype, value(e.args[0], p));
      default: BOLT_CHECK(false, "an accumulator cannot be run alone");
    }
    return {};
  }

  int64_t address(const IndexFn& index, const std::vector<GatherTerm>& gather,
                  const std::vector<int64_t>& p) const {
    int64_t at = index.at(p);
    for (const GatherTerm& g : gather) at += size(g.coef) * value(g.value, p).i;
    return at;
  }

  static ScalarCell start(ReduceOp op, DType t) {
    double inf = std::numeric_limits<double>::infinity();
    int64_t low = t == DType::Bool || t == DType::U8 ? 0 : std::numeric_limits<int64_t>::min();
    switch (op) {
      case ReduceOp::Prod:
      case ReduceOp::All: return {1, 1};
      case ReduceOp::LogAddExp:
      case ReduceOp::Max: return {-inf, low};
      case ReduceOp::Min: return {inf, std::numeric_limits<int64_t>::max()};
      default: return {0, 0};
    }
  }
  static ScalarCell combine(ReduceOp op, DType t, ScalarCell a, ScalarCell b) {
    const ScalarCell both[] = {a, b};
    switch (op) {
      case ReduceOp::Sum: return {a.f + b.f, wrap_to(t, a.i + b.i)};
      case ReduceOp::Prod: return {a.f * b.f, wrap_to(t, a.i * b.i)};
      case ReduceOp::Max: return apply(ScalarOp::maximum, t, both);
      case ReduceOp::Min: return apply(ScalarOp::minimum, t, both);
      case ReduceOp::Any: return {0, a.i || b.i};
      case ReduceOp::LogAddExp: return {log_of_sum(a.f, b.f), 0};
      default: return {0, a.i && b.i};
    }
  }
  static double log_of_sum(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::nan("");
    const double high = std::max(a, b), low = std::min(a, b);
    return high == low && std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
  }
  /// Is `b` to be taken in place of the best so far? The first of equals wins, NaN beats all.
  static bool better(ReduceOp op, DType t, ScalarCell best, ScalarCell b) {
    if (!is_float(t)) return op == ReduceOp::ArgMax ? b.i > best.i : b.i < best.i;
    if (std::isnan(best.f)) return false;
    return std::isnan(b.f) || (op == ReduceOp::ArgMax ? b.f > best.f : b.f < best.f);
  }

  void reduce(ExprId id) {
    const Expr& e = k_.exprs[id];
    const Expr& x = k_.exprs[e.args[0]];
    std::vector<ScalarCell>& out = values_[id];
    if (is_arg_reduce(e.reduce_op)) return arg_reduce(e, x, &out);
    DType t = x.dtype;
    out.assign(count(e.dims), start(e.reduce_op, t));
    each(x.dims, [&](const std::vector<int64_t>& p) {
      ScalarCell& c = out[offset(e.dims, p)];
      c = combine(e.reduce_op, t, c, value(e.args[0], p));
    });
  }
  void arg_reduce(const Expr& e, const Expr& x, std::vector<ScalarCell>* out) {
    int dim = std::countr_zero(e.reduce_dims);
    std::vector<ScalarCell> best(count(e.dims));
    out->assign(best.size(), {0, -1});
    each(x.dims, [&](const std::vector<int64_t>& p) {
      int64_t at = offset(e.dims, p);
      ScalarCell v = value(e.args[0], p);
      if ((*out)[at].i >= 0 && !better(e.reduce_op, x.dtype, best[at], v)) return;
      best[at] = v;
      (*out)[at].i = p[dim];
    });
  }

  void scan(ExprId id) {
    const Expr& e = k_.exprs[id];
    const int dim = std::countr_zero(e.reduce_dims);
    std::vector<ScalarCell>& out = values_[id];
    out.resize(count(e.dims));
    each(e.dims, [&](std::vector<int64_t> p) {
      ScalarCell& here = out[offset(e.dims, p)];
      here = value(e.args[0], p);
      if (p[dim]-- > 0) here = combine(e.reduce_op, e.dtype, out[offset(e.dims, p)], here);
    });
  }

  void store(const Store& s) {
    IndexFn index(k_, s.index, syms_);
    const DType t = k_.buffers[s.buffer].dtype;
    void* const base = buffers_[s.buffer];
    each(k_.dims_of(s), [&](const std::vector<int64_t>& p) {
      if (s.mask != kNone && !value(s.mask, p).i) return;
      const int64_t at = address(index, s.gather, p);
      ScalarCell v = value(s.value, p);
      if (s.combines()) v = combine(combiner_of(s.into), compute_type(t), load_cell(t, base, at), v);
      store_cell(t, base, at, v);
    });
  }

  const Kernel& k_;
  void* const* buffers_;
  const int64_t* syms_;
  std::vector<int64_t> sizes_;
  std::vector<std::vector<ScalarCell>> values_;
};

}  // namespace

void run_reference(const Kernel& k, void* const* buffers, const int64_t* syms) {
  Runner(k, buffers, syms).run();
}

}  // namespace bolt::loops

// graph/shape.cpp
// Operands and attributes -> the result's type, for every row of ops.def, on sizes that may be symbols.
//
// Two symbolic sizes agree when they are the same expression; where they are not and must be, SizeDemand asks
// whoever makes the graph. A misfit is an internal error, since users' mistakes were reported by eager's own
// run.
#include <algorithm>
#include <numeric>

#include "graph/device_facts.h"
#include "graph/op_rules.h"
#include "support/error.h"
#include "support/size_demand.h"

namespace bolt::graph {
namespace {

using Sizes = Syms;

std::string text(const Sizes& sizes) {
  std::string out = "[";
  for (size_t i = 0; i < sizes.size(); ++i) out += (i ? ", " : "") + sizes[i].str();
  return out + "]";
}

/// What a shape function sees of the node that is being made.
struct NodeInMaking {
  Op op;
  const std::vector<Value*>& operands;
  const Attrs& attrs;

  const Type& type(int i = 0) const { return operands[i]->type; }
  const Sizes& sizes(int i = 0) const { return operands[i]->type.sizes; }
  int rank(int i = 0) const { return type(i).rank(); }
  int count() const { return static_cast<int>(operands.size()); }
  std::string_view name() const { return op_info(op).name; }

  template <typename T>
  const T& attr(std::string_view attr_name) const {
    auto it = attrs.find(attr_name);
    BOLT_CHECK(it != attrs.end(), name(), " needs ", attr_name);
    return std::get<T>(it->second);
  }
  const Sizes& list(std::string_view attr_name) const { return attr<Sizes>(attr_name); }
  Sym sym(std::string_view attr_name) const { return list(attr_name)[0]; }
  bool has(std::string_view attr_name) const { return attrs.find(attr_name) != attrs.end(); }
  int dim(int of) const {
    int64_t d = attr<int64_t>("dim");
    BOLT_CHECK(d >= 0 && d < rank(of), name(), ": dim ", d, " of ", text(sizes(of)));
    return static_cast<int>(d);
  }
};

bool differ(Sym a, Sym b) { return !same_size(a, b); }

// ---- pointwise ----

Sizes broadcast_all(const NodeInMaking& s) {
  Sizes out = s.sizes(0);
  for (int i = 1; i < s.count(); ++i)
    if (s.sizes(i) != out) out = broadcast(out, s.sizes(i));
  return out;
}

Sizes reduced(const NodeInMaking& s) {
  const Sizes& dims = s.list("dims");
  bool keep = s.attr<bool>("keepdim");
  std::vector<bool> drop(s.rank());
  int64_t last = -1;
  for (Sym d : dims) {
    BOLT_CHECK(d.value() > last && d.value() < s.rank(), s.name(), ": dims ", text(dims), " of ",
               text(s.sizes()));
    last = d.value();
    drop[last] = true;
  }
  BOLT_CHECK((s.op != Op::argmax && s.op != Op::argmin) || dims.size() == 1, s.name(),
             " over one dimension only");
  Sizes out;
  for (int i = 0; i < s.rank(); ++i) {
    if (!drop[i]) out.push_back(s.sizes()[i]);
    if (drop[i] && keep) out.push_back(1);
  }
  return out;
}

// ---- views ----

void check_permutation(const NodeInMaking& s, const Sizes& dims) {
  std::vector<bool> seen(dims.size());
  BOLT_CHECK(dims.size() == s.sizes().size(), "permute ", text(dims), " of ", text(s.sizes()));
  for (Sym d : dims) {
    BOLT_CHECK(d.value() >= 0 && d.value() < s.rank() && !seen[d.value()], "permute by ", text(dims));
    seen[d.value()] = true;
  }
}

Type permuted(const NodeInMaking& s) {
  const Sizes& dims = s.list("dims");
  check_permutation(s, dims);
  Type t = s.type();
  for (size_t i = 0; i < dims.size(); ++i) {
    t.sizes[i] = s.type().sizes[dims[i].value()];
    t.strides[i] = s.type().strides[dims[i].value()];
  }
  return t;
}

Type reshaped(const NodeInMaking& s) {
  Type t = s.type();
  t.sizes = s.list("sizes");
  BOLT_CHECK(same_size(product(t.sizes), s.type().numel()), "reshape of ", text(s.sizes()), " to ",
             text(t.sizes));
  t.strides = contiguous_strides(t.sizes);
  return t;
}

Type expanded(const NodeInMaking& s) {
  Type t = s.type();
  const Sizes& to = s.list("sizes");
  int grow = static_cast<int>(to.size()) - s.rank();
  BOLT_CHECK(grow >= 0, "expand of ", text(s.sizes()), " to ", text(to));
  t.sizes = to;
  t.strides.assign(to.size(), 0);
  for (int i = 0; i < s.rank(); ++i) {
    if (s.sizes()[i].is_const(1) && !to[i + grow].is_const(1)) continue;
    BOLT_CHECK(same_size(s.sizes()[i], to[i + grow]), "expand of ", text(s.sizes()), " to ", text(to));
    t.strides[i + grow] = s.type().strides[i];
  }
  return t;
}

Type sliced(const NodeInMaking& s) {
  Type t = s.type();
  int dim = s.dim(0);
  Sym start = s.sym("start"), length = s.sym("length");
  int64_t step = s.attr<int64_t>("step");
  BOLT_CHECK(step > 0, "slice with step ", step);
  Sym end = start + (length - Sym(1)) * Sym(step);
  BOLT_CHECK(!length.is_const() || length.value() >= 0, "slice of length ", length.str());
  bool outside =
      !length.is_const(0) && end.is_const() && t.sizes[dim].is_const() && end.value() >= t.sizes[dim].value();
  BOLT_CHECK(!outside && !(start.is_const() && start.value() < 0), "slice of ", text(s.sizes()), " at ",
             start.str(), ", ", length.str(), " long");
  t.sizes[dim] = length;
  t.strides[dim] *= Sym(step);
  return t;
}

Type flipped(const NodeInMaking& s) {
  Type t = s.type();
  for (Sym d : s.list("dims"))
    BOLT_CHECK(d.value() >= 0 && d.value() < s.rank(), "flip of dimension ", d.value());
  t.strides = contiguous_strides(t.sizes);
  return t;
}

Type kept(const NodeInMaking& s) {
  Type t = s.type();
  t.strides = contiguous_strides(t.sizes);
  return t;
}

Type restrided(const NodeInMaking& s) {
  Type t = s.type();
  t.sizes = s.list("sizes");
  t.strides = s.list("strides");
  BOLT_CHECK(t.sizes.size() == t.strides.size(), "as_strided with ", text(t.sizes), " and ", text(t.strides));
  Sym last = s.sym("offset");
  for (size_t i = 0; i < t.sizes.size(); ++i) last += (t.sizes[i] - Sym(1)) * t.strides[i];
  bool empty = std::any_of(t.sizes.begin(), t.sizes.end(), [](Sym x) { return x.is_const(0); });
  Sym numel = s.type().numel();
  BOLT_CHECK(empty || !last.is_const() || !numel.is_const() || last.value() < numel.value(),
             "as_strided to element ", last.str(), " of ", numel.str());
  return t;
}

// ---- computed and conditional indices ----

Sizes concatenated(const NodeInMaking& s) {
  int dim = s.dim(0);
  Sizes out = s.sizes();
  for (int i = 1; i < s.count(); ++i) {
    BOLT_CHECK(s.rank(i) == s.rank(0), "cat of ", text(s.sizes(0)), " and ", text(s.sizes(i)));
    for (int d = 0; d < s.rank(); ++d)
      BOLT_CHECK(d == dim || !differ(out[d], s.sizes(i)[d]), "cat of ", text(s.sizes(0)), " and ",
                 text(s.sizes(i)));
    out[dim] += s.sizes(i)[dim];
  }
  return out;
}

Sizes padded(const NodeInMaking& s) {
  Sizes out = s.sizes();
  const Sizes &low = s.list("low"), &high = s.list("high");
  BOLT_CHECK(low.size() == out.size() && high.size() == out.size(), "pad of ", text(out), " by ", text(low));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] += low[i] + high[i];
    BOLT_CHECK(!out[i].is_const() || out[i].value() >= 0, "pad to a negative size");
  }
  return out;
}

void check_index(const NodeInMaking& s) {
  BOLT_CHECK(is_int(s.type(1).dtype), s.name(), " by ", dtype_name(s.type(1).dtype));
}

Sizes embedded(const NodeInMaking& s) {
  check_index(s);
  BOLT_CHECK(s.rank() >= 1, "embedding of a number");
  Sizes out = s.sizes(1);
  out.insert(out.end(), s.sizes(0).begin() + 1, s.sizes(0).end());
  return out;
}

Sizes index_selected(const NodeInMaking& s) {
  check_index(s);
  BOLT_CHECK(s.rank(1) == 1, "index_select by ", text(s.sizes(1)));
  Sizes out = s.sizes();
  out[s.dim(0)] = s.sizes(1)[0];
  return out;
}

Sizes gathered(const NodeInMaking& s) {
  check_index(s);
  s.dim(0);
  BOLT_CHECK(s.rank(1) == s.rank(0), "gather of ", text(s.sizes()), " by ", text(s.sizes(1)));
  return s.sizes(1);
}

Sizes slice_scattered(const NodeInMaking& s) {
  int dim = s.dim(0);
  BOLT_CHECK(s.rank(1) == s.rank(0), "slice_scatter of ", text(s.sizes(1)), " into ", text(s.sizes()));
  for (int d = 0; d < s.rank(); ++d)
    BOLT_CHECK(d == dim || !differ(s.sizes(0)[d], s.sizes(1)[d]), "slice_scatter of ", text(s.sizes(1)),
               " into ", text(s.sizes()));
  BOLT_CHECK(s.attr<int64_t>("step") > 0, "slice_scatter with step ", s.attr<int64_t>("step"));
  return s.sizes();
}

Sizes scanned(const NodeInMaking& s) {
  const std::string& op = s.attr<std::string>("op");
  static constexpr std::string_view kOps[] = {"sum", "prod", "max", "min", "logaddexp"};
  BOLT_CHECK(std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps), "no scan by ", op);
  s.dim(0);
  return s.sizes();
}

Sizes scattered(const NodeInMaking& s) {
  const std::string& op = s.attr<std::string>("op");
  static constexpr std::string_view kOps[] = {"last", "sum", "prod", "max", "min"};
  BOLT_CHECK(std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps), "no scatter by ", op);
  check_index(s);
  s.dim(0);
  BOLT_CHECK(s.rank(1) == s.rank(0) && s.rank(2) == s.rank(1), "scatter of ", text(s.sizes(2)), " into ",
             text(s.sizes()), " by ", text(s.sizes(1)));
  for (int d = 0; d < s.rank(); ++d)
    BOLT_CHECK(!differ(s.sizes(1)[d], s.sizes(2)[d]), "scatter of ", text(s.sizes(2)), " by ",
               text(s.sizes(1)));
  BOLT_CHECK(s.type(2).dtype == s.type(0).dtype, "scatter of ", dtype_name(s.type(2).dtype), " into ",
             dtype_name(s.type(0).dtype));
  return s.sizes();
}

Sizes with_spatial(const NodeInMaking& s) {
  const Sizes& spatial = s.list("sizes");
  Sizes out = s.sizes();
  BOLT_CHECK(spatial.size() <= out.size(), s.name(), " of ", text(out), " to ", text(spatial));
  std::copy(spatial.begin(), spatial.end(), out.end() - static_cast<std::ptrdiff_t>(spatial.size()));
  return out;
}

// ---- windows ----

// ATen's rule: with `ceil` the last window may hang over the end, but must start inside.
Sym window_count(Sym size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil) {
  Sym span = size + Sym(2 * padding - dilation * (kernel - 1) - 1);
  if (!ceil) return floordiv(span, stride) + Sym(1);
  size.value();  // demands it: whether the last window begins beyond the end differs between sizes
  Sym count = ceildiv(span, stride) + Sym(1);
  if ((count.value() - 1) * stride >= size.value() + padding) count = count - Sym(1);
  return count;
}

Sizes pooled(const NodeInMaking& s) {
  const Sizes &kernel = s.list("kernel"), &stride = s.list("stride"), &padding = s.list("padding");
  size_t n = kernel.size();
  BOLT_CHECK(stride.size() == n && padding.size() == n && s.rank() >= static_cast<int>(n), s.name(), " of ",
             text(s.sizes()), " by ", text(kernel));
  Sizes out = s.sizes();
  for (size_t i = 0; i < n; ++i) {
    Sym& size = out[out.size() - n + i];
    int64_t dilation = s.op == Op::max_pool ? s.list("dilation")[i].value() : 1;
    size = window_count(size, kernel[i].value(), stride[i].value(), padding[i].value(), dilation,
                        s.attr<bool>("ceil"));
    BOLT_CHECK(!size.is_const() || size.value() > 0, s.name(), " of ", text(s.sizes()), " by ", text(kernel));
  }
  return out;
}

Sizes convolved(const NodeInMaking& s) {
  const Sizes &x = s.sizes(0), &w = s.sizes(1);
  const Sizes &stride = s.list("stride"), &padding = s.list("padding"), &dilation = s.list("dilation");
  int64_t groups = s.attr<int64_t>("groups");
  bool transposed = s.attr<bool>("transposed");
  const Sizes& padding_end = s.has("padding_end") ? s.list("padding_end") : padding;
  size_t n = w.size() - 2;
  BOLT_CHECK(w.size() >= 3 && x.size() == w.size() && stride.size() == n && padding.size() == n &&
                 dilation.size() == n && groups > 0 && padding_end.size() == n &&
                 !(transposed && s.has("padding_end")),
             "conv of ", text(x), " by ", text(w));
  BOLT_CHECK(!differ(x[1], transposed ? w[0] : w[1] * Sym(groups)), "conv of ", text(x), " by ", text(w));
  Sizes out = x;
  out[1] = transposed ? w[1] * Sym(groups) : w[0];
  BOLT_CHECK(s.count() < 3 || (s.rank(2) == 1 && !differ(s.sizes(2)[0], out[1])), "conv with a bias of ",
             text(s.sizes(2)));
  for (size_t i = 0; i < n; ++i) {
    Sym reach = dilation[i] * (w[i + 2] - Sym(1));
    if (transposed) {
      const Sizes& extra = s.list("output_padding");
      out[i + 2] = (x[i + 2] - Sym(1)) * stride[i] - padding[i] * Sym(2) + reach + Sym(1) +
                   (extra.size() == n ? extra[i] : Sym(0));
    } else {
      out[i + 2] = floordiv(x[i + 2] + padding[i] + padding_end[i] - reach - Sym(1), stride[i]) + Sym(1);
    }
  }
  for (size_t i = 0; s.count() > 3 && i < out.size(); ++i)
    BOLT_CHECK(s.sizes(3).size() == out.size() && !differ(s.sizes(3)[i], out[i]), "conv with ",
               text(s.sizes(3)), " added");
  return out;
}

// ---- contractions ----

Sizes leading(const Sizes& sizes) { return Sizes(sizes.begin(), sizes.end() - 2); }

Sizes multiplied(const NodeInMaking& s) {
  const Sizes &a = s.sizes(0), &b = s.sizes(1);
  BOLT_CHECK(a.size() >= 2 && b.size() >= 2 && !differ(a.back(), b[b.size() - 2]), "matmul of ", text(a),
             " and ", text(b));
  Sizes out = broadcast(leading(a), leading(b));
  out.push_back(a[a.size() - 2]);
  out.push_back(b.back());
  return out;
}

Sizes linear_applied(const NodeInMaking& s) {
  const Sizes &x = s.sizes(0), &w = s.sizes(1);
  BOLT_CHECK(!x.empty() && w.size() == 2 && !differ(x.back(), w[1]), "linear of ", text(x), " by ", text(w));
  BOLT_CHECK(s.count() < 3 || (s.rank(2) == 1 && !differ(s.sizes(2)[0], w[0])), "linear with a bias of ",
             text(s.sizes(2)));
  Sizes out = x;
  out.back() = w[0];
  return out;
}

Sizes linear_by_each(const NodeInMaking& s) {
  const Sizes &x = s.sizes(0), &w = s.sizes(1);
  BOLT_CHECK(!x.empty() && w.size() == 2 && !differ(x.back(), w[1]), "linears of ", text(x), " by ", text(w));
  for (int i = 2; i < s.count(); ++i)
    BOLT_CHECK(s.rank(i) == 2 && !differ(s.sizes(i)[0], w[0]) && !differ(s.sizes(i)[1], w[1]), "linears by ",
               text(w), " and ", text(s.sizes(i)));
  Sizes out = {s.count() - 1};
  out.insert(out.end(), x.begin(), x.end());
  out.back() = w[0];
  return out;
}

Sizes linear_by_parts(const NodeInMaking& s) {
  const Sizes &x = s.sizes(0), &w = s.sizes(1), &v = s.sizes(2);
  BOLT_CHECK(!x.empty() && w.size() == 2 && v.size() == 2 && !differ(x.back(), w[1]) && !differ(w[1], v[1]),
             "linear_of_parts of ", text(x), " by ", text(w), " and ", text(v));
  Sizes out = x;
  out.back() = w[0] + v[0];
  return out;
}

Sizes joined(const NodeInMaking& s) {
  Sizes out = s.sizes(0);
  for (int i = 1; i < s.count(); ++i) {
    BOLT_CHECK(out.size() == 2 && s.rank(i) == 2 && !differ(s.sizes(i)[1], out[1]), "joined ", text(out),
               " and ", text(s.sizes(i)));
    out[0] += s.sizes(i)[0];
  }
  return out;
}

Sizes attended(const NodeInMaking& s) {
  const Sizes &q = s.sizes(0), &k = s.sizes(1), &v = s.sizes(2);
  bool ranks = q.size() >= 3 && k.size() == q.size() && v.size() == q.size();
  BOLT_CHECK(ranks && !differ(q.back(), k.back()) && !differ(k[k.size() - 2], v[v.size() - 2]), "sdpa of ",
             text(q), ", ", text(k), ", ", text(v));
  Sizes shared = broadcast(leading(k), leading(v));
  if (s.attr<bool>("enable_gqa")) {
    const size_t heads = q.size() - 3;  // a group of the queries' to each of the keys and values
    BOLT_CHECK(!differ(k[heads], v[heads]), "sdpa of groups with ", text(k), " and ", text(v));
    shared[heads] = q[heads];
  }
  Sizes out = broadcast(leading(q), shared);
  out.push_back(q[q.size() - 2]);
  out.push_back(v.back());
  return out;
}

// ---- putting it together ----

DType common_dtype(const NodeInMaking& s, int from = 0) {
  for (int i = from + 1; i < s.count(); ++i)
    BOLT_CHECK(s.type(i).dtype == s.type(from).dtype, s.name(), " of ", dtype_name(s.type(from).dtype),
               " and ", dtype_name(s.type(i).dtype));
  return s.type(from).dtype;
}

/// Halves stand for the same numbers in float32. Only code of ours multiplies by them as they are
/// (loops/narrow_weights.h).
bool may_have_narrow_weights(const NodeInMaking& s) {
  return (s.op == Op::linear || s.op == Op::conv) && s.type(0).dtype == DType::F32 &&
         compute_type(s.type(1).dtype) == DType::F32;
}

DType own_dtype(const NodeInMaking& s) {
  if (s.op == Op::where) {
    BOLT_CHECK(s.type(0).dtype == DType::Bool, "where on ", dtype_name(s.type(0).dtype));
    return common_dtype(s, 1);
  }
  if (op_info(s.op).kind == OpKind::Library) {  // an attention mask may be b8
    for (int i = 1; i < s.count(); ++i)
      BOLT_CHECK(s.type(i).dtype == s.type(0).dtype ||
                     (s.op == Op::sdpa && i == 3 && s.type(3).dtype == DType::Bool) ||
                     (may_have_narrow_weights(s) && i == 1),
                 s.name(), " of ", dtype_name(s.type(0).dtype), " and ", dtype_name(s.type(i).dtype));
    if ((s.op == Op::matmul || s.op == Op::linear) && s.has("wide") && s.attr<bool>("wide"))
      return DType::F32;
  }
  return s.type(0).dtype;
}

DType result_dtype(const NodeInMaking& s) {
  switch (op_rules(s.op).dtype) {
    case DTypeRule::Same: return common_dtype(s);
    case DTypeRule::Bool: common_dtype(s); return DType::Bool;
    case DTypeRule::Attr: return s.attr<DType>("dtype");
    case DTypeRule::Int64: return DType::I64;
    case DTypeRule::Float32: return DType::F32;
    case DTypeRule::Float64: return DType::F64;
    case DTypeRule::Own: return own_dtype(s);
    case DTypeRule::Float: {
      DType t = common_dtype(s);
      BOLT_CHECK(is_float(t) || is_complex(t), s.name(), " of ", dtype_name(t));
      return t;
    }
  }
  return DType::F32;
}

Sizes own_sizes(const NodeInMaking& s) {
  switch (s.op) {
    case Op::scalar: return {};
    case Op::full: return s.list("sizes");
    case Op::iota: return {s.sym("size")};
    case Op::cat: return concatenated(s);
    case Op::pad: return padded(s);
    case Op::embedding: return embedded(s);
    case Op::gather: return gathered(s);
    case Op::index_select: return index_selected(s);
    case Op::slice_scatter: return slice_scattered(s);
    case Op::scan: return scanned(s);
    case Op::scatter: return scattered(s);
    case Op::upsample_nearest:
    case Op::adaptive_avg_pool: return with_spatial(s);
    case Op::avg_pool:
    case Op::max_pool: return pooled(s);
    case Op::matmul: return multiplied(s);
    case Op::linear: return linear_applied(s);
    case Op::linears: return linear_by_each(s);
    case Op::linear_of_parts: return linear_by_parts(s);
    case Op::joined: return joined(s);
    case Op::conv: return convolved(s);
    case Op::sdpa: return attended(s);
    default: BOLT_CHECK(false, "no shape rule for ", s.name());
  }
  return {};
}

Type view_type(const NodeInMaking& s) {
  switch (s.op) {
    case Op::reshape: return reshaped(s);
    case Op::permute: return permuted(s);
    case Op::expand: return expanded(s);
    case Op::slice: return sliced(s);
    case Op::flip: return flipped(s);
    case Op::keep: return kept(s);
    case Op::as_strided: return restrided(s);
    default: BOLT_CHECK(false, "no shape rule for ", s.name());
  }
  return {};
}

// Outermost first, when the strides are those of a dense tensor in another order; else nothing.
std::vector<int> dense_order(const Type& t) {
  std::vector<int> order(t.rank());
  std::iota(order.begin(), order.end(), 0);
  for (Sym s : t.strides)
    if (!s.is_const()) return {};
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return t.strides[a].value() > t.strides[b].value(); });
  for (int i = 0; i < t.rank(); ++i)
    if (strides_in_order(t.sizes, order)[i] != t.strides[i] && !t.sizes[i].is_const(1)) return {};
  return order;
}

// Eager's habit: the result of a pointwise operation, a convolution, a pool or a border lies as its first
// full operand does.
Syms result_strides(const NodeInMaking& s, const Sizes& sizes) {
  OpKind kind = op_info(s.op).kind;
  bool follows = kind == OpKind::Pointwise || s.op == Op::conv || s.op == Op::avg_pool ||
                 s.op == Op::max_pool || s.op == Op::adaptive_avg_pool || s.op == Op::batch_norm ||
                 s.op == Op::upsample_nearest || s.op == Op::pad;
  if (!follows) return contiguous_strides(sizes);
  for (const Value* v : s.operands) {
    bool full = kind == OpKind::Pointwise ? v->type.sizes == sizes : v == s.operands[0];
    if (!full) continue;
    if (v->type.is_contiguous()) break;
    std::vector<int> order = dense_order(v->type);
    if (!order.empty()) return strides_in_order(sizes, order);
  }
  return contiguous_strides(sizes);
}

}  // namespace

Syms broadcast(const Syms& a, const Syms& b) {
  if (b.size() > a.size()) return broadcast(b, a);
  Sizes out = a;
  size_t offset = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    Sym& x = out[offset + i];
    if (b[i].is_const(1)) continue;
    BOLT_CHECK(x.is_const(1) || same_size(x, b[i]), "shapes ", text(a), " and ", text(b),
               " do not broadcast");
    x = b[i];
  }
  return out;
}

Type infer_type(Op op, const std::vector<Value*>& operands, const Attrs& attrs) {
  NodeInMaking s{op, operands, attrs};
  if (op_info(op).kind == OpKind::View) return view_type(s);
  Type t;
  t.dtype = result_dtype(s);
  for (const Value* v : operands)  // a number on the processor may meet tensors elsewhere
    if (is_processor(t.device)) t.device = v->type.device;
  if (op == Op::transfer) t.device = parse_device(std::get<std::string>(attrs.at("device")));
  switch (op_rules(op).shape) {
    case ShapeRule::Broadcast: t.sizes = broadcast_all(s); break;
    case ShapeRule::Same: t.sizes = s.sizes(); break;
    case ShapeRule::Reduce: t.sizes = reduced(s); break;
    case ShapeRule::Own: t.sizes = own_sizes(s); break;
  }
  t.strides = result_strides(s, t.sizes);
  return t;
}

}  // namespace bolt::graph

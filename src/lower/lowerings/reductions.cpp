// lower/lowerings/reductions.cpp
// Rows for reductions over dimensions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lower/families.h"
#include "record/convert.h"

namespace bolt::lower {
namespace {

using record::to_bolt;

// `dim` absent, None or empty: all dimensions.
Syms reduced_dims(Call& c, const char* self = "self") {
  int64_t rank = c.rank(self);
  std::vector<int64_t> dims;
  if (c.has("dim")) dims = c.integers("dim");
  for (auto& d : dims) d = Call::wrap(d, rank);
  if (dims.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
  }
  std::sort(dims.begin(), dims.end());
  return Call::syms(dims);
}
bool keepdim(Call& c) { return c.has("keepdim") && c.flag("keepdim"); }

Value* reduce(Call& c, Op op, Value* x, const Syms& dims, bool keep) {
  if (x->type.rank() == 0) return nullptr;
  return c.make(op, {x}, {{"dims", dims}, {"keepdim", keep}});
}
std::vector<Value*> one(Value* v) { return v ? std::vector<Value*>{v} : std::vector<Value*>{}; }

bool empty(const Syms& sizes) {  // a symbol is never 0
  return std::find(sizes.begin(), sizes.end(), Sym(0)) != sizes.end();
}

// Computed in the result's type, which is the asked one, or i64 for integers.
std::vector<Value*> arithmetic(Call& c, Op op) {
  Value* x = c.cast(c.tensor("self"), c.result_dtype());
  return one(reduce(c, op, x, reduced_dims(c), keepdim(c)));
}
std::vector<Value*> sum(Call& c) { return arithmetic(c, Op::sum); }
std::vector<Value*> prod(Call& c) { return arithmetic(c, Op::prod); }
std::vector<Value*> mean(Call& c) { return arithmetic(c, Op::mean); }
std::vector<Value*> logsumexp(Call& c) { return arithmetic(c, Op::logsumexp); }

/// What is no number counts as 0.
std::vector<Value*> nansum(Call& c) {
  Value* x = c.tensor("self");
  const DType t = x->type.dtype;
  if (is_float(t)) x = c.make(Op::where, {c.make(Op::isnan, {x}), c.scalar_value(0, t), x});
  return one(reduce(c, Op::sum, c.cast(x, c.result_dtype()), reduced_dims(c), keepdim(c)));
}
std::vector<Value*> count_nonzero(Call& c) {
  Value* is_one = c.cast(c.tensor("self"), DType::Bool);
  return one(reduce(c, Op::sum, c.cast(is_one, c.result_dtype()), reduced_dims(c), false));
}

std::vector<Value*> extreme(Call& c, Op op) {
  if (empty(c.sizes("self"))) return {};  // eager raises
  Value* x = c.tensor("self");
  if (x->type.dtype == DType::Bool) return {};
  return one(reduce(c, op, x, reduced_dims(c), keepdim(c)));
}
std::vector<Value*> amax(Call& c) { return extreme(c, Op::amax); }
std::vector<Value*> amin(Call& c) { return extreme(c, Op::amin); }

std::vector<Value*> aminmax(Call& c) {
  const auto least = amin(c), most = amax(c);
  return least.empty() || most.empty() ? std::vector<Value*>{} : std::vector{least[0], most[0]};
}

std::vector<Value*> truth(Call& c, Op op) {
  Value* x = c.tensor("self");
  Value* result = reduce(c, op, c.cast(x, DType::Bool), reduced_dims(c), keepdim(c));
  // Before there was bool, uint8 was the type of truth, and of what is made of it still is.
  return one(result && x->type.dtype == DType::U8 ? c.cast(result, DType::U8) : result);
}
std::vector<Value*> any(Call& c) { return truth(c, Op::any); }
std::vector<Value*> all(Call& c) { return truth(c, Op::all); }

// No dim: the position among all elements.
std::vector<Value*> arg_extreme(Call& c, Op op) {
  if (empty(c.sizes("self"))) return {};
  Value* x = c.tensor("self");
  if (x->type.dtype == DType::Bool || x->type.rank() == 0) return {};
  if (!c.has("dim")) {
    if (keepdim(c)) return {};
    return one(reduce(c, op, c.reshape(x, {product(x->type.sizes)}), {Sym(0)}, false));
  }
  return one(reduce(c, op, x, reduced_dims(c), keepdim(c)));
}
std::vector<Value*> argmax(Call& c) { return arg_extreme(c, Op::argmax); }
std::vector<Value*> argmin(Call& c) { return arg_extreme(c, Op::argmin); }

std::vector<Value*> extreme_with_index(Call& c, Op value, Op index) {
  auto v = extreme(c, value), i = arg_extreme(c, index);
  if (v.empty() || i.empty()) return {};
  return {v[0], i[0]};
}
std::vector<Value*> max_dim(Call& c) { return extreme_with_index(c, Op::amax, Op::argmax); }
std::vector<Value*> min_dim(Call& c) { return extreme_with_index(c, Op::amin, Op::argmin); }

double correction(Call& c) {
  if (c.has("correction")) return c.number("correction");
  if (c.has("unbiased")) return c.flag("unbiased") ? 1 : 0;
  return 1;
}
Value* variance(Call& c) {
  Value* x = c.tensor("self");
  if (!is_float(x->type.dtype) || x->type.rank() == 0) return nullptr;
  return c.make(Op::var, {x},
                {{"dims", reduced_dims(c)}, {"keepdim", keepdim(c)}, {"correction", correction(c)}});
}
std::vector<Value*> var(Call& c) { return one(variance(c)); }
std::vector<Value*> std_dev(Call& c) {
  Value* v = variance(c);
  return v ? one(c.make(Op::sqrt, {v})) : std::vector<Value*>{};
}
std::vector<Value*> var_mean(Call& c) {
  Value* v = variance(c);
  if (!v) return {};
  return {v, reduce(c, Op::mean, c.tensor("self"), reduced_dims(c), keepdim(c))};
}

std::vector<Value*> std_mean(Call& c) {
  std::vector<Value*> both = var_mean(c);
  if (!both.empty()) both[0] = c.make(Op::sqrt, {both[0]});
  return both;
}

std::vector<Value*> vector_norm(Call& c) {
  const char* name = c.has("ord") ? "ord" : "p";
  const DType t = c.result_dtype();
  if (!c.has(name) || !is_float(t) || is_opaque(c.tensor("self")->type.dtype)) return {};
  const double p = c.number(name);
  Value* x = c.cast(c.tensor("self"), t);
  auto over = [&](Op op, Value* v) { return reduce(c, op, v, reduced_dims(c), keepdim(c)); };
  if (p == 2) {
    Value* s = over(Op::sum, c.make(Op::mul, {x, x}));
    return s ? one(c.make(Op::sqrt, {s})) : std::vector<Value*>{};
  }
  if (std::isinf(p)) {
    if (empty(c.sizes("self"))) return {};
    return one(over(p > 0 ? Op::amax : Op::amin, c.make(Op::abs, {x})));
  }
  if (p == 0) return one(over(Op::sum, c.cast(c.make(Op::ne, {x, c.scalar_value(0, t)}), t)));
  if (p == 1) return one(over(Op::sum, c.make(Op::abs, {x})));
  const DType wide = compute_type(t);
  Value* s = over(Op::sum, c.make(Op::pow, {c.make(Op::abs, {c.cast(x, wide)}), c.scalar_value(p, wide)}));
  if (!s) return {};
  return one(c.cast(c.make(Op::pow, {s, c.scalar_value(1 / p, wide)}), t));
}

}  // namespace

void add_reductions(Table& t) {
  const RowsByName row{t};
  row(sum, {"sum", "sum.dim_IntList"});
  row(prod, {"prod", "prod.dim_int"});
  row(mean, {"mean", "mean.dim"});
  row(logsumexp, {"logsumexp"});
  row(nansum, {"nansum"});
  row(count_nonzero, {"count_nonzero", "count_nonzero.dim_IntList"});
  row(amax, {"amax", "max"});
  row(amin, {"amin", "min"});
  row(aminmax, {"aminmax"});
  row(any, {"any", "any.dim", "any.dims", "_is_any_true"});
  row(all, {"all", "all.dim", "all.dims", "_is_all_true"});
  row(argmax, {"argmax"});
  row(argmin, {"argmin"});
  row(max_dim, {"max.dim"});
  row(min_dim, {"min.dim"});
  row(var, {"var", "var.dim", "var.correction"});
  row(std_dev, {"std", "std.dim", "std.correction"});
  row(var_mean, {"var_mean", "var_mean.dim", "var_mean.correction"});
  row(std_mean, {"std_mean", "std_mean.dim", "std_mean.correction"});
  row(vector_norm, {"linalg_vector_norm", "norm.ScalarOpt_dim", "norm.Scalar"});
}

}  // namespace bolt::lower

// lower/lowerings/scans.cpp
// Rows for running results along a dimension, and for places in what is sorted.
//
// Where ATen's call is better it is kept, which prices say (loops/cost.h): scans_well.
#include <bit>

#include "loops/cost.h"
#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

/// x with each element combined with those before it. Nothing: a call is better.
std::optional<Term> running(Term x, int64_t dim, const std::string& op) {
  dim = Call::wrap(dim, x.rank());
  if (x.rank() == 0) return x;
  if (!loops::scans_well(x.value->type, static_cast<int>(dim), op)) return std::nullopt;
  return x.apply(Op::scan, {{"op", op}, {"dim", dim}});
}

Results summed(Call& c, const char* op) {
  const DType t = c.result_dtype();
  if (is_opaque(t) || t == DType::Bool) return {};
  const auto y = running(Term{&c, c.cast(c.tensor("self"), t)}, c.integer("dim"), op);
  return y ? Results{y->value} : Results{};
}
Results cumsum(Call& c) { return summed(c, "sum"); }
Results cumprod(Call& c) { return summed(c, "prod"); }
Results logcumsumexp(Call& c) { return is_float(c.result_dtype()) ? summed(c, "logaddexp") : Results{}; }

// An element that equals the extreme so far is its place, the last of several; a NaN always is.
Results extreme(Call& c, const char* op) {
  const Term x{&c, c.tensor("self")};
  if (is_opaque(x.dtype()) || x.dtype() == DType::Bool) return {};
  if (x.rank() == 0) return {};
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const auto y = running(x, dim, op);
  if (!y) return {};
  Term here = x == *y;
  if (is_float(x.dtype())) here = here | x.apply(Op::isnan);
  const Formula f(c, DType::I64);
  const Term places = f.places(x.sizes()[dim], dim, x.sizes().size()).expanded(x.sizes());
  const auto at = running(where(here, places, 0), dim, "max");
  return {y->value, at->value};
}
Results cummax(Call& c) { return extreme(c, "max"); }
Results cummin(Call& c) { return extreme(c, "min"); }

/// The places of a mask take the elements of `source`, one after the other.
Results masked_scatter(Call& c) {
  const Term x{&c, c.tensor("self")}, source{&c, c.tensor("source")};
  const Sym given = source.value->type.numel();
  if (given.is_const(0) || x.value->type.numel().is_const(0)) return {};
  const Term here = Term{&c, c.tensor("mask")}.as(DType::Bool);
  const Syms sizes = where(here, x, x).sizes();
  if (sizes.empty()) return {};
  const Term flat = here.expanded(sizes).reshaped({product(sizes)});
  const auto count = running(flat.as(DType::I64), 0, "sum");
  if (!count) return {};
  const Term place = Formula(c, DType::I64).checked(where(flat, *count - 1.0, 0.0), given);
  const Term taken_there = taken(source.reshaped({given}), 0, place).reshaped(sizes);
  return {where(flat.reshaped(sizes), taken_there, x.expanded(sizes)).value};
}

// ---- sorted numbers ----

/// Steps of a search: as many reads, all written out.
constexpr int64_t kMostBits = 20;

// Half of what is left at each step: how many of the numbers stand before x. What compares with nothing is
// behind all.
Results place_among(Call& c, const char* sorted, const char* of, bool right) {
  const Term numbers{&c, c.tensor(sorted)};
  if (is_opaque(numbers.dtype()) || numbers.dtype() == DType::Bool || numbers.rank() == 0) return {};
  if (c.is_tensor(of) && c.tensor(of)->type.dtype != numbers.dtype()) return {};
  const Term x{&c, c.operand(of, numbers.dtype())};
  const bool one_list = numbers.rank() == 1;
  if (!one_list && numbers.rank() != x.rank()) return {};
  const Sym size = numbers.sizes().back();
  if (!size.is_const() || size.is_const(0)) return {};
  const int64_t n = size.value();
  const int bits = std::bit_width(static_cast<uint64_t>(n));
  if (bits > kMostBits) return {};
  const Formula f(c, DType::I64);
  Term found = f.full(0, x.sizes());
  for (int64_t step = int64_t{1} << (bits - 1); step > 0; step /= 2) {
    const Term next = found + static_cast<double>(step);
    const Term at = smaller(next, f.number(static_cast<double>(n))) - 1;
    const Term probed{&c, one_list ? c.make(Op::embedding, {numbers.value, at.value})
                                   : c.make(Op::gather, {numbers.value, at.value},
                                            {{"dim", static_cast<int64_t>(numbers.rank()) - 1}})};
    const Term before = !(right ? probed > x : probed >= x);
    found = where(before & (next <= static_cast<double>(n)), next, found);
  }
  return {c.cast(found.value, c.result_dtype())};
}
Results bucketize(Call& c) { return place_among(c, "boundaries", "self", c.flag("right")); }
Results searchsorted(Call& c) {
  if (c.has("sorter")) return {};
  const bool right = c.flag("right") || (c.has("side") && c.text("side") == "right");
  return place_among(c, "sorted_sequence", "self", right);
}

}  // namespace

void add_scans(Table& t) {
  const RowsByName row{t};
  row(cumsum, {"cumsum"});
  row(cumprod, {"cumprod"});
  row(logcumsumexp, {"logcumsumexp"});
  row(cummax, {"cummax"});
  row(cummin, {"cummin"});
  row(masked_scatter, {"masked_scatter"});
  row(bucketize, {"bucketize.Tensor", "bucketize.Scalar"});
  row(searchsorted, {"searchsorted.Tensor", "searchsorted.Scalar"});
}

}  // namespace bolt::lower

// lower/formula.h
// Formulas as they stand in a book: g * s * (1 - s) makes the nodes.
//
// Gradients are long formulas over few operands; written node by node nobody could compare them with ATen's.
// Operands are brought to one element type first (Formula's), results are rounded once, by result().
#pragma once

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "lower/lowering.h"

namespace bolt::lower {

/// Of a row: one value for each result.
using Results = std::vector<Value*>;

/// A value of the call that is being lowered.
struct Term {
  const Call* call;
  Value* value;

  DType dtype() const { return value->type.dtype; }
  const Syms& sizes() const { return value->type.sizes; }
  int rank() const { return value->type.rank(); }

  /// A number of the same element type.
  Term number(double v) const { return {call, call->scalar_value(v, dtype())}; }
  Term apply(Op op, Attrs attrs = {}) const { return {call, call->make(op, {value}, std::move(attrs))}; }
  Term with(Op op, Term other) const { return {call, call->make(op, {value, other.value})}; }
  Term as(DType t) const { return {call, call->cast(value, t)}; }

  Term reshaped(const Syms& to) const { return {call, call->reshape(value, to)}; }
  Term expanded(const Syms& to) const;
  Term part(int64_t dim, Sym start, Sym length) const;
  /// Over no dimension at all: the value itself.
  Term reduced(Op op, const Syms& dims, bool keep) const;
  Term sum(const Syms& dims, bool keep = true) const { return reduced(Op::sum, dims, keep); }
  Term mean(const Syms& dims, bool keep = true) const { return reduced(Op::mean, dims, keep); }
};

Term operator-(Term a);
Term operator!(Term a);
#define BOLT_TERM_OPERATOR(sign)                                             \
  Term operator sign(Term a, Term b);                                        \
  inline Term operator sign(Term a, double b) { return a sign a.number(b); } \
  inline Term operator sign(double a, Term b) { return b.number(a) sign b; }
BOLT_TERM_OPERATOR(+)
BOLT_TERM_OPERATOR(-)
BOLT_TERM_OPERATOR(*)
BOLT_TERM_OPERATOR(/)
BOLT_TERM_OPERATOR(<)
BOLT_TERM_OPERATOR(<=)
BOLT_TERM_OPERATOR(>)
BOLT_TERM_OPERATOR(>=)
BOLT_TERM_OPERATOR(==)
BOLT_TERM_OPERATOR(!=)
BOLT_TERM_OPERATOR(&)
BOLT_TERM_OPERATOR(|)
#undef BOLT_TERM_OPERATOR

Term where(Term condition, Term yes, Term no);
inline Term where(Term condition, double yes, Term no) { return where(condition, no.number(yes), no); }
inline Term where(Term condition, Term yes, double no) { return where(condition, yes, yes.number(no)); }

/// Terms that are added up one by one, in this order.
struct Sum : std::optional<Term> {
  void operator+=(Term part) { emplace(*this ? **this + part : part); }
};

/// The operands of a call as terms of one element type, and its results.
class Formula {
 public:
  /// Computed in the compute type of result `like`.
  explicit Formula(Call& c, int like = 0) : c_(c), type_(compute_type(c.result_dtype(like))) {}
  Formula(Call& c, DType type) : c_(c), type_(type) {}

  DType type() const { return type_; }
  /// ATen's own rows of integers and truth values stay ATen's.
  bool is_real() const { return is_float(type_); }

  Term operator()(const char* name) const { return {&c_, c_.operand(name, type_)}; }
  /// In the element type it has.
  Term raw(const char* name) const { return {&c_, c_.tensor(name)}; }
  Term number(double v) const { return {&c_, c_.scalar_value(v, type_)}; }
  /// A size or a product of sizes.
  Term count(Sym n) const;
  /// 0, 1, 2, ... along `dim` of a value of that many dimensions.
  Term places(Sym size, int64_t dim, size_t rank) const;
  Term full(double v, const Syms& sizes) const;
  /// The index itself, where it is one of `size`; elsewhere the call is run by eager, which raises.
  Term checked(Term index, Sym size) const;

  /// Rounded to the element type of result i.
  Value* result(Term t, int i = 0) const { return c_.cast(t.value, c_.result_dtype(i)); }
  std::vector<Value*> only(Term t) const { return {result(t)}; }

 private:
  Call& c_;
  DType type_;
};

/// A row with one result, of reals, by its formula: Term(const Formula&), or Term(Call&, const Formula&).
template <auto formula>
Results of_reals(Call& c) {
  const Formula f(c);
  if (!f.is_real()) return {};
  if constexpr (std::is_invocable_v<decltype(formula), const Formula&>)
    return f.only(formula(f));
  else
    return f.only(formula(c, f));
}

/// The dimensions from `first` up to, but without, `last`.
Syms dims_between(int64_t first, int64_t last);
/// All of `rank` but one.
Syms dims_except(int64_t dim, int64_t rank);

/// x with `value` around it; a negative number takes as many away.
Term padded(Term x, const Syms& low, const Syms& high, double value = 0);
Term permuted(Term x, const std::vector<int64_t>& dims);
/// x with zeros around along `dim`, so that it has `size` elements there.
Term placed(Term x, int64_t dim, Sym start, Sym size);
/// x read along `dim` at `places`, whole numbers in one dimension.
Term taken(Term x, int64_t dim, Term places);
Term reversed(Term x, int64_t dim);
/// One run of numbers, `along` the one dimension of `rank` in which it lies.
Term along(Term run, int64_t dim, size_t rank);

inline Term smaller(Term a, Term b) { return a.with(Op::minimum, b); }
inline Term larger(Term a, Term b) { return a.with(Op::maximum, b); }
inline Term clamped(Term x, Term least, Term most) { return smaller(larger(x, least), most); }
inline Term floor(Term x) { return x.apply(Op::floor); }
inline Term exp(Term x) { return x.apply(Op::exp); }
inline Term log(Term x) { return x.apply(Op::log); }
inline Term log1p(Term x) { return x.apply(Op::log1p); }
inline Term abs(Term x) { return x.apply(Op::abs); }
inline Term tanh(Term x) { return x.apply(Op::tanh); }
inline Term sigmoid(Term x) { return x.apply(Op::sigmoid); }

}  // namespace bolt::lower

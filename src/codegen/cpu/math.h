// codegen/cpu/math.h
// Scalar operations on values and vectors -> LLVM IR, inline, for float and double at any vector width.
//
// Every function is within 2 ulp of the exact result over its whole domain (tests/codegen/math_test.cpp
// sweeps each; a double's lgamma within 8, of its own or of what it is the difference of), keeps NaN,
// infinities, denormals and signed zeros, and has no table and no call on its hot path. How:
//   float   evaluated in float where that is fast and accurate enough (exp, log, tanh, erf, sin, cos,
//           sigmoid); the rare rest is evaluated in double and rounded once.
//   double  argument reduction with fma and a compensated tail, then a polynomial.
// Polynomials are near-minimax fits rounded coefficient by coefficient (math_tables.h).
//
// Only fma where it is written: the results rest on exact products, so no fast-math flag is set in here.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>
#include <initializer_list>
#include <span>

#include "codegen/cpu/jit.h"

namespace bolt::codegen::cpu {

using Builder = llvm::IRBuilder<>;

/// Small vocabulary over IRBuilder that works alike for scalars and vectors of float or double.
class Arithmetic {
 public:
  using Value = llvm::Value*;
  Arithmetic(Builder& b, const Target& target) : b_(b), target_(target) {}

  Value constant(Value like, double value) const;  // splat of like's floating type
  Value integer(Value like, int64_t value) const;  // splat of like's integer type
  llvm::Type* int_type(Value like) const;          // integers as wide as like's elements
  llvm::Type* with_element(Value like, llvm::Type* element) const;
  bool is_double(Value x) const;
  unsigned lanes(Value x) const;

  Value fma(Value a, Value b, Value c) const;
  Value fms(Value a, Value b, Value c) const { return fma(a, b, b_.CreateFNeg(c)); }   // a*b - c
  Value fnma(Value a, Value b, Value c) const { return fma(b_.CreateFNeg(a), b, c); }  // c - a*b
  Value unary(llvm::Intrinsic::ID id, Value x) const;
  Value abs(Value x) const { return unary(llvm::Intrinsic::fabs, x); }
  Value sqrt(Value x) const { return unary(llvm::Intrinsic::sqrt, x); }
  Value round_even(Value x) const { return unary(llvm::Intrinsic::rint, x); }
  Value copysign(Value magnitude, Value sign) const;
  Value is_nan(Value x) const { return b_.CreateFCmpUNO(x, x); }
  Value bits(Value x) const { return b_.CreateBitCast(x, int_type(x)); }
  Value from_bits(Value i, Value like) const { return b_.CreateBitCast(i, like->getType()); }
  /// c[0] + c[1] x + ... by Horner's rule.
  Value poly(Value x, std::span<const double> c) const;
  /// x * 2^n for integral n (given as a floating value) with |n| < 2200; right in the denormal range too.
  Value scale(Value x, Value n) const;
  /// Runs `then` only when some lane of `condition` is set; gives its value there and `value` elsewhere.
  Value when_any(Value condition, Value value, const std::function<Value(Value)>& then) const;

 protected:
  Builder& b_;
  const Target& target_;
};

class Math : public Arithmetic {
 public:
  using Arithmetic::Arithmetic;

  Value exp(Value x) const;
  Value exp2(Value x) const;
  Value expm1(Value x) const;
  Value log(Value x) const;
  Value log2(Value x) const;
  Value log10(Value x) const;
  Value log1p(Value x) const;
  Value sin(Value x) const;
  Value cos(Value x) const;
  Value tan(Value x) const;
  Value fmod(Value x, Value y) const;
  Value asin(Value x) const;
  Value acos(Value x) const;
  Value atan(Value x) const;
  Value atan2(Value y, Value x) const;
  Value sinh(Value x) const;
  Value cosh(Value x) const;
  Value tanh(Value x) const;
  Value asinh(Value x) const;
  Value acosh(Value x) const;
  Value atanh(Value x) const;
  Value erf(Value x) const;
  Value erfc(Value x) const;
  Value erfcx(Value x) const;
  Value ndtr(Value x) const;
  Value erfinv(Value x) const;
  Value lgamma(Value x) const;
  Value sigmoid(Value x) const;
  Value rsqrt(Value x) const;
  Value pow(Value x, Value y) const;

 private:
  struct Split {  // hi + lo, |lo| <= ulp(hi)/2
    Value hi, lo;
  };
  struct Reduced {  // x = n*period + (hi + lo)
    Value n, hi, lo;
  };
  struct Mantissa {  // x = 2^e * (1 + f), 1+f in [sqrt(1/2), sqrt(2))
    Value e, f;
  };
  Reduced reduce_ln2(Value x) const;
  Value exp_tail(Value r) const;              // (e^r - 1 - r) / r^2
  Value exp_reduced(const Reduced& r) const;  // e^(hi+lo) before scaling by 2^n
  Value exp2_reduced(Value f) const;          // 2^f, |f| <= 1/2
  Mantissa mantissa(Value x) const;
  Value log_special(Value x, Value result) const;
  Value log_base(Value x, double hi, double lo, double e_hi, double e_lo) const;
  Value log_rough(Value x) const;  // double only, ~2^-58 relative to max(1, |log x|)
  Reduced reduce_pi_2(Value x) const;
  Split sine(const Reduced& r) const;
  Split cosine(const Reduced& r) const;
  Value sin_cos(Value x, bool cosine_wanted) const;
  Value far_trig(Value x, Value near, const char* helper) const;
  Value atan_ratio(Value num, Value den) const;  // both >= 0
  Value asin_tail(Value z) const;                // (asin(sqrt z)/sqrt z - 1)
  Split erfc_factor(Value a) const;              // (1 + 2a) e^(a^2) erfc(a) for 0 <= a <= 28, or 11
  Value erfc_scaled(Value a) const;              // erfc(a) for a >= 0
  Value erfinv_near64(Value x, Value w) const;   // w = -log(1 - x^2) <= 6.25
  Value erfinv_far64(Value x, Value s) const;    // s = sqrt(w)
  Value times_poly(Value x, Value z, std::span<const double> c) const;  // x (c[0] + c[1] z + ...)
  Split log2_split(Value x) const;
  Split two_sum(Value a, Value b) const;
  Split fast_two_sum(Value a, Value b) const;
  Split two_prod(Value a, Value b) const;
  Value ratio(const Split& n, const Split& d) const;
  Value in_double(std::initializer_list<Value> args,
                  const std::function<Value(std::span<const Value>)>& f) const;
};

}  // namespace bolt::codegen::cpu

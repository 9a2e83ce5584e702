// codegen/cpu/math.cpp
// See math.h. Each function's comment gives the identity it rests on; constants are named where they are
// split into a leading part and a tail.

#include "codegen/cpu/math.h"

#include <llvm/IR/Module.h>
#include <cmath>
#include <limits>
#include <vector>

#include "codegen/cpu/math_tables.h"

namespace bolt::codegen::cpu {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Tail = 0x1.abc9e3b39803fp-56;
constexpr double kLn2F = static_cast<float>(kLn2), kLn2FTail = -1.904654299957768e-09;
constexpr double kInvLn2 = 0x1.71547652b82fep+0, kInvLn2Tail = 0x1.777d0ffda0d24p-56;
constexpr double kPi = 0x1.921fb54442d18p+1, kPiTail = 0x1.1a62633145c07p-53;

}  // namespace

// ---- splitting sums and products exactly

Math::Split Math::two_sum(Value a, Value b) const {
  Value s = b_.CreateFAdd(a, b);
  Value bb = b_.CreateFSub(s, a);
  return {s, b_.CreateFAdd(b_.CreateFSub(a, b_.CreateFSub(s, bb)), b_.CreateFSub(b, bb))};
}

Math::Split Math::fast_two_sum(Value a, Value b) const {  // |a| >= |b|
  Value s = b_.CreateFAdd(a, b);
  return {s, b_.CreateFSub(b, b_.CreateFSub(s, a))};
}

Math::Split Math::two_prod(Value a, Value b) const {
  Value p = b_.CreateFMul(a, b);
  return {p, fms(a, b, p)};
}

// n / d, rounded about once: the residual of the rounded quotient is divided as well. n.lo may be null: zero.
Math::Value Math::ratio(const Split& n, const Split& d) const {
  Value inverse = b_.CreateFDiv(constant(n.hi, 1), d.hi);
  Value q = b_.CreateFMul(n.hi, inverse);
  Value residual = fnma(q, d.lo, fnma(q, d.hi, n.hi));
  if (n.lo) residual = b_.CreateFAdd(residual, n.lo);
  return fma(residual, inverse, q);
}

Math::Value Math::in_double(std::initializer_list<Value> args,
                            const std::function<Value(std::span<const Value>)>& f) const {
  llvm::Type* narrow = (*args.begin())->getType();
  std::vector<Value> wide;
  for (Value a : args) wide.push_back(b_.CreateFPExt(a, with_element(a, b_.getDoubleTy())));
  return b_.CreateFPTrunc(f(wide), narrow);
}

// ---- exponentials: x = n ln2 + r, e^x = 2^n e^r

Math::Reduced Math::reduce_ln2(Value x) const {
  const bool dbl = is_double(x);
  Value n = round_even(b_.CreateFMul(x, constant(x, kInvLn2)));
  Value r = fnma(n, constant(x, dbl ? kLn2 : kLn2F), x);  // exact: n has few bits
  Value tail = constant(x, dbl ? kLn2Tail : kLn2FTail);
  Value hi = fnma(n, tail, r);
  return {n, hi, fnma(n, tail, b_.CreateFSub(r, hi))};
}

Math::Value Math::exp_tail(Value r) const { return is_double(r) ? poly(r, kExp64) : poly(r, kExp32); }

Math::Value Math::exp_reduced(const Reduced& r) const {
  Value square = b_.CreateFMul(r.hi, r.hi);
  return b_.CreateFAdd(fma(square, exp_tail(r.hi), r.hi), constant(r.hi, 1));
}

namespace {

/// Into [low, high]; a NaN stays (the operand order is the one of x86's min and max).
llvm::Value* clamp(Builder& b, llvm::Value* x, double low, double high) {
  llvm::Value* hi = llvm::ConstantFP::get(x->getType(), high);
  llvm::Value* lo = llvm::ConstantFP::get(x->getType(), low);
  x = b.CreateSelect(b.CreateFCmpOLT(hi, x), hi, x);
  return b.CreateSelect(b.CreateFCmpOGT(lo, x), lo, x);
}

/// Beyond these e^x is infinite or zero, and 2^n still has a place in Arithmetic::scale.
llvm::Value* clamp_exp(Builder& b, llvm::Value* x, bool dbl) {
  return dbl ? clamp(b, x, -750, 711) : clamp(b, x, -106, 90);
}

}  // namespace

Math::Value Math::exp(Value x) const {
  Reduced r = reduce_ln2(clamp_exp(b_, x, is_double(x)));
  return scale(exp_reduced(r), r.n);
}

Math::Value Math::exp2(Value x) const {
  x = is_double(x) ? clamp(b_, x, -1080, 1025) : clamp(b_, x, -152, 129);
  Value n = round_even(x);
  return scale(exp2_reduced(b_.CreateFSub(x, n)), n);
}

Math::Value Math::exp2_reduced(Value f) const {
  if (!is_double(f)) return fma(f, poly(f, kExp2In32), constant(f, 1));
  return exp_reduced({nullptr, b_.CreateFMul(f, constant(f, kLn2)), nullptr});
}

// 2^n (p + 1) - 1 with p = e^r - 1, at half size so that 2^n stays finite.
Math::Value Math::expm1(Value x) const {
  const bool dbl = is_double(x);
  Reduced r = reduce_ln2(dbl ? clamp(b_, x, -50, 710) : clamp(b_, x, -30, 89));
  Value square = b_.CreateFMul(r.hi, r.hi);
  Value p = b_.CreateFAdd(r.hi, fma(square, exp_tail(r.hi), r.lo));
  Value half = scale(constant(x, 0.5), r.n);
  Value y = fma(half, p, b_.CreateFSub(half, constant(x, 0.5)));
  y = b_.CreateFAdd(y, y);
  Value tiny = b_.CreateFCmpOLT(abs(x), constant(x, dbl ? 0x1p-55 : 0x1p-26));
  return b_.CreateSelect(tiny, x, y);
}

Math::Value Math::sigmoid(Value x) const {
  Value one = constant(x, 1);
  Value e = exp(b_.CreateFNeg(abs(x)));
  Value num = b_.CreateSelect(b_.CreateFCmpOGE(x, constant(x, 0)), one, e);
  return ratio({num, nullptr}, fast_two_sum(one, e));
}

// ---- logarithms: x = 2^e (1 + f)

Math::Mantissa Math::mantissa(Value x) const {
  const bool dbl = is_double(x);
  const int shift = dbl ? 52 : 23;
  Value small = b_.CreateFCmpOLT(x, constant(x, dbl ? 0x1p-1022 : 0x1p-126));
  x = b_.CreateSelect(small, b_.CreateFMul(x, constant(x, dbl ? 0x1p52 : 0x1p23)), x);
  Value offset = b_.CreateSelect(small, constant(x, -shift), constant(x, 0));
  Value i = bits(x);
  Value root_half = bits(constant(x, dbl ? M_SQRT1_2 : static_cast<float>(M_SQRT1_2)));
  Value e = b_.CreateAShr(b_.CreateSub(i, root_half), integer(x, shift));
  Value m = from_bits(b_.CreateSub(i, b_.CreateShl(e, integer(x, shift))), x);
  // Small integers to floating by the magic sum (AVX2 has no 64-bit conversion).
  Value magic = constant(x, dbl ? 0x1.8p52 : 0x1.8p23);
  Value ef = b_.CreateFSub(from_bits(b_.CreateAdd(e, bits(magic)), x), magic);
  return {b_.CreateFAdd(ef, offset), b_.CreateFSub(m, constant(x, 1))};
}

Math::Value Math::log_special(Value x, Value result) const {
  result = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, kInf)), x, result);
  result = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0)), constant(x, -kInf), result);
  return b_.CreateSelect(b_.CreateFCmpULT(x, constant(x, 0)), constant(x, kNan), result);
}

namespace {

/// log(1+f) = f - (square/2 - correction): gives both parts, so that callers add their own tails in between.
struct LogParts {
  llvm::Value *half_square, *correction;
};

LogParts log_parts(const Math& m, Builder& b, llvm::Value* f) {
  llvm::Value* square = b.CreateFMul(f, f);
  llvm::Value* half = b.CreateFMul(square, m.constant(f, 0.5));
  if (!m.is_double(f)) return {half, b.CreateFMul(b.CreateFMul(square, f), m.poly(f, kLog32))};
  llvm::Value* s = b.CreateFDiv(f, b.CreateFAdd(f, m.constant(f, 2)));
  llvm::Value* z = b.CreateFMul(s, s);
  llvm::Value* series = b.CreateFMul(z, m.poly(z, kLog64));
  return {half, b.CreateFMul(s, b.CreateFAdd(half, series))};
}

}  // namespace

Math::Value Math::log(Value x) const {
  const bool dbl = is_double(x);
  Mantissa m = mantissa(x);
  LogParts p = log_parts(*this, b_, m.f);
  Value low = fma(m.e, constant(x, dbl ? kLn2Tail : kLn2FTail), p.correction);
  Value near_one = b_.CreateFSub(m.f, b_.CreateFSub(p.half_square, low));
  return log_special(x, fma(m.e, constant(x, dbl ? kLn2 : kLn2F), near_one));
}

// log1p(x) = log(u) + c/u with u = 1+x rounded and c what the rounding lost.
Math::Value Math::log1p(Value x) const {
  const bool dbl = is_double(x);
  Split u = two_sum(constant(x, 1), x);
  Mantissa m = mantissa(u.hi);
  LogParts p = log_parts(*this, b_, m.f);
  Value lost = b_.CreateFDiv(u.lo, u.hi);
  Value low = b_.CreateFAdd(fma(m.e, constant(x, dbl ? kLn2Tail : kLn2FTail), lost), p.correction);
  Value near_one = b_.CreateFSub(m.f, b_.CreateFSub(p.half_square, low));
  Value y = fma(m.e, constant(x, dbl ? kLn2 : kLn2F), near_one);
  y = log_special(u.hi, y);
  return b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0)), x, y);
}

Math::Value Math::log_rough(Value x) const {
  Mantissa m = mantissa(x);
  LogParts p = log_parts(*this, b_, m.f);
  Value near_one = b_.CreateFSub(m.f, b_.CreateFSub(p.half_square, p.correction));
  return log_special(x, fma(m.e, constant(x, kLn2), near_one));
}

// log_b(x) = e log_b(2) + (hi + lo) / ln(b), with hi short enough for exact products.
Math::Value Math::log_base(Value x, double hi, double lo, double e_hi, double e_lo) const {
  const int64_t short_bits = is_double(x) ? ~0xffffffffll : ~0xfffll;
  Mantissa m = mantissa(x);
  LogParts p = log_parts(*this, b_, m.f);
  Value head = b_.CreateFSub(m.f, p.half_square);
  head = from_bits(b_.CreateAnd(bits(head), integer(head, short_bits)), head);
  Value tail = b_.CreateFAdd(b_.CreateFSub(b_.CreateFSub(m.f, head), p.half_square), p.correction);
  Value result_hi = b_.CreateFMul(head, constant(x, hi));
  Value result_lo = b_.CreateFMul(b_.CreateFAdd(tail, head), constant(x, lo));
  result_lo = fma(tail, constant(x, hi), result_lo);
  result_lo = fma(m.e, constant(x, e_lo), result_lo);
  Split sum = fast_two_sum(b_.CreateFMul(m.e, constant(x, e_hi)), result_hi);
  Value y = b_.CreateFAdd(sum.hi, b_.CreateFAdd(sum.lo, result_lo));
  return log_special(x, y);
}

Math::Value Math::log2(Value x) const {
  if (is_double(x)) return log_base(x, 0x1.71547p+0, 0x1.94ae0bf85ddf4p-22, 1, 0);
  return log_base(x, 0x1.716p+0, kInvLn2 - 0x1.716p+0, 1, 0);
}

Math::Value Math::log10(Value x) const {
  if (is_double(x))
    return log_base(x, 0x1.bcb7bp-2, 0x1.526e50e32a6abp-26, 0x1.34413p-2, 0x1.427de7fbcc47cp-24);
  return log_base(x, 0x1.bccp-2, M_LOG10E - 0x1.bccp-2, 0x1.3441p-2, 0x1.34413509f79ffp-2 - 0x1.3441p-2);
}

// ---- what division leaves

// |x| - n |y| with n = trunc(|x| / |y|), in double: there n |y| is exact as long as n is below 2^28, and so
// is the difference, which is a multiple of y's last bit. Where the quotient was rounded up to a whole
// number, n is one too many. Larger quotients, infinities and zeros are the C library's, whose loop takes 17
// ns an element.
Math::Value Math::fmod(Value x, Value y) const {
  if (is_double(x)) return b_.CreateFRem(x, y);
  llvm::Type* type = with_element(x, b_.getDoubleTy());
  Value wide = abs(b_.CreateFPExt(x, type)), by = abs(b_.CreateFPExt(y, type));
  Value quotient = b_.CreateFDiv(wide, by);
  Value rest = b_.CreateFSub(wide, b_.CreateFMul(unary(llvm::Intrinsic::trunc, quotient), by));
  rest = b_.CreateSelect(b_.CreateFCmpOLT(rest, constant(wide, 0)), b_.CreateFAdd(rest, by), rest);
  rest = b_.CreateSelect(b_.CreateFCmpOGE(rest, by), b_.CreateFSub(rest, by), rest);
  Value near = copysign(b_.CreateFPTrunc(rest, x->getType()), x);
  Value far = b_.CreateOr(b_.CreateFCmpUGE(quotient, constant(wide, 0x1p28)),
                          b_.CreateFCmpOEQ(by, constant(wide, std::numeric_limits<double>::infinity())));
  return when_any(far, near, [&](Value fast) { return b_.CreateSelect(far, b_.CreateFRem(x, y), fast); });
}

// ---- trigonometry: x = n pi/2 + r; far arguments (|n| >= 2^30, never in a model) are done by a helper, lane
// by lane

namespace {
constexpr double kFarTrig = 0x1p30;
}

Math::Reduced Math::reduce_pi_2(Value x) const {
  const bool dbl = is_double(x);
  Value wide = dbl ? x : b_.CreateFPExt(x, with_element(x, b_.getDoubleTy()));
  Value magic = constant(wide, 0x1.8p52);
  Value shifted = fma(wide, constant(wide, M_2_PI), magic);
  Value n = b_.CreateFSub(shifted, magic);
  Value r = fnma(n, constant(wide, kPi / 2), wide);  // exact
  Value tail = constant(wide, kPiTail / 2);
  Value hi = fnma(n, tail, r);
  Value quadrant = bits(shifted);
  if (!dbl) {
    llvm::Type* narrow = with_element(x, b_.getInt32Ty());
    return {b_.CreateTrunc(quadrant, narrow), b_.CreateFPTrunc(hi, x->getType()), constant(x, 0)};
  }
  Value lo = fnma(n, tail, b_.CreateFSub(r, hi));
  return {quadrant, hi, fnma(n, constant(x, -0x1.f1976b7ed8fbcp-110), lo)};
}

// sin(hi + lo) = hi - t
Math::Split Math::sine(const Reduced& r) const {
  Value x = r.hi;
  Value z = b_.CreateFMul(x, x);
  if (!is_double(x)) return {fma(b_.CreateFMul(z, x), poly(z, kSin32), x), constant(x, 0)};
  Value cube = b_.CreateFMul(z, x);
  Value rest = poly(z, std::span(kSin64).subspan(1));
  // x - ((z (lo/2 - cube rest) - lo) - cube S0)
  Value inner = fnma(cube, rest, b_.CreateFMul(r.lo, constant(x, 0.5)));
  Value t = fnma(cube, constant(x, kSin64[0]), fms(z, inner, r.lo));
  Value hi = b_.CreateFSub(x, t);
  return {hi, b_.CreateFSub(b_.CreateFSub(x, hi), t)};
}

// cos(hi + lo) = 1 - z/2 + (z^2 C(z) - hi lo)
Math::Split Math::cosine(const Reduced& r) const {
  Value x = r.hi;
  Value z = b_.CreateFMul(x, x);
  Value one = constant(x, 1), half = b_.CreateFMul(z, constant(x, 0.5));
  Value w = b_.CreateFSub(one, half);
  Value lost = b_.CreateFSub(b_.CreateFSub(one, w), half);
  Value series = is_double(x) ? poly(z, kCos64) : poly(z, kCos32);
  Value rest = b_.CreateFMul(b_.CreateFMul(z, z), series);
  if (is_double(x)) rest = fnma(x, r.lo, rest);
  rest = b_.CreateFAdd(lost, rest);
  Value hi = b_.CreateFAdd(w, rest);
  return {hi, b_.CreateFAdd(b_.CreateFSub(w, hi), rest)};
}

Math::Value Math::far_trig(Value x, Value near, const char* helper) const {
  Value far = b_.CreateFCmpOGT(abs(x), constant(x, kFarTrig));
  return when_any(far, near, [&](Value fast) -> Value {
    llvm::Function* function = b_.GetInsertBlock()->getParent();
    llvm::BasicBlock& entry = function->getEntryBlock();
    Builder at_entry(&entry, entry.begin());
    Value slot = at_entry.CreateAlloca(x->getType());
    b_.CreateStore(x, slot);
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getInt64Ty()}, false);
    llvm::CallInst* call = b_.CreateCall(function->getParent()->getOrInsertFunction(helper, type),
                                         {slot, b_.getInt64(lanes(x))});
    call->addFnAttr(llvm::Attribute::Cold);
    call->addFnAttr(llvm::Attribute::NoUnwind);
    return b_.CreateSelect(far, b_.CreateLoad(x->getType(), slot), fast);
  });
}

Math::Value Math::sin_cos(Value x, bool cosine_wanted) const {
  Reduced r = reduce_pi_2(x);
  Value quadrant = cosine_wanted ? b_.CreateAdd(r.n, integer(x, 1)) : r.n;
  Value odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, integer(x, 1)), integer(x, 0));
  Value y = b_.CreateSelect(odd, cosine(r).hi, sine(r).hi);
  const int top = is_double(x) ? 62 : 30;
  Value sign = b_.CreateShl(b_.CreateAnd(quadrant, integer(x, 2)), integer(x, top));
  return from_bits(b_.CreateXor(bits(y), sign), x);
}

Math::Value Math::sin(Value x) const {
  Value y = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0)), x, sin_cos(x, false));
  return far_trig(x, y, is_double(x) ? "bolt_sin_f64" : "bolt_sin_f32");
}

Math::Value Math::cos(Value x) const {
  return far_trig(x, sin_cos(x, true), is_double(x) ? "bolt_cos_f64" : "bolt_cos_f32");
}

// sin/cos, or -cos/sin in odd quadrants, with the quotient's residual and both tails put back.
Math::Value Math::tan(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return tan(a[0]); });
  Reduced r = reduce_pi_2(x);
  Split s = sine(r), c = cosine(r);
  Value odd = b_.CreateICmpNE(b_.CreateAnd(r.n, integer(x, 1)), integer(x, 0));
  auto pick = [&](Value a, Value b) { return b_.CreateSelect(odd, a, b); };
  Value n = pick(b_.CreateFNeg(c.hi), s.hi), n_tail = pick(b_.CreateFNeg(c.lo), s.lo);
  Value d = pick(s.hi, c.hi), d_tail = pick(s.lo, c.lo);
  Value q = b_.CreateFDiv(n, d);
  Value residual = b_.CreateFAdd(fnma(q, d, n), fnma(q, d_tail, n_tail));
  Value y = b_.CreateFAdd(q, b_.CreateFDiv(residual, d));
  y = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(x, 0)), x, y);
  return far_trig(x, y, "bolt_tan_f64");
}

// ---- inverse trigonometry, in double

Math::Value Math::asin_tail(Value z) const { return b_.CreateFMul(z, poly(z, kAsin64)); }

namespace {

/// sqrt(z) and what its rounding lost.
struct RootWithTail {
  llvm::Value *root, *tail;
};

RootWithTail root_with_tail(const Math& m, Builder& b, llvm::Value* z) {
  llvm::Value* s = m.sqrt(z);
  llvm::Value* tail = b.CreateFDiv(m.fnma(s, s, z), b.CreateFAdd(s, s));
  llvm::Value* zero = b.CreateFCmpOEQ(z, m.constant(z, 0));
  return {s, b.CreateSelect(zero, m.constant(z, 0), tail)};
}

}  // namespace

// |x| > 1/2: asin(x) = pi/2 - 2 asin(sqrt((1-x)/2))
Math::Value Math::asin(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return asin(a[0]); });
  Value a = abs(x);
  Value big = b_.CreateFCmpOGT(a, constant(x, 0.5));
  Value z = b_.CreateSelect(big, b_.CreateFMul(b_.CreateFSub(constant(x, 1), a), constant(x, 0.5)),
                            b_.CreateFMul(a, a));
  Value tail = asin_tail(z);
  RootWithTail s = root_with_tail(*this, b_, z);
  Value half = b_.CreateFAdd(s.root, fma(s.root, tail, b_.CreateFSub(s.tail, constant(x, kPiTail / 4))));
  Value far = b_.CreateFSub(constant(x, kPi / 2), b_.CreateFAdd(half, half));
  return copysign(b_.CreateSelect(big, far, fma(a, tail, a)), x);
}

Math::Value Math::acos(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return acos(a[0]); });
  Value a = abs(x);
  Value big = b_.CreateFCmpOGT(a, constant(x, 0.5)), negative = b_.CreateFCmpOLT(x, constant(x, 0));
  Value z = b_.CreateSelect(big, b_.CreateFMul(b_.CreateFSub(constant(x, 1), a), constant(x, 0.5)),
                            b_.CreateFMul(a, a));
  Value tail = asin_tail(z);
  RootWithTail s = root_with_tail(*this, b_, z);
  Value near_one = b_.CreateFAdd(s.root, fma(s.root, tail, s.tail));
  near_one = b_.CreateFAdd(near_one, near_one);
  Value half = b_.CreateFAdd(s.root, fma(s.root, tail, b_.CreateFSub(s.tail, constant(x, kPiTail / 2))));
  Value near_minus_one = b_.CreateFSub(constant(x, kPi), b_.CreateFAdd(half, half));
  Value middle = b_.CreateFSub(x, fnma(x, tail, constant(x, kPiTail / 2)));
  middle = b_.CreateFSub(constant(x, kPi / 2), middle);
  return b_.CreateSelect(big, b_.CreateSelect(negative, near_minus_one, near_one), middle);
}

// atan(num/den), both >= 0: swapped into [0, 1], then turned by pi/4 above tan(pi/8).
Math::Value Math::atan_ratio(Value num, Value den) const {
  Value swap = b_.CreateFCmpOGT(num, den);
  Value a = b_.CreateSelect(swap, den, num), b = b_.CreateSelect(swap, num, den);
  Value turn = b_.CreateFCmpOGT(a, b_.CreateFMul(b, constant(b, M_SQRT2 - 1)));
  Value unit = b_.CreateSelect(b_.CreateFCmpOGT(b, constant(b, 1)), constant(b, 0.5), constant(b, 1));
  Value a1 = b_.CreateFMul(a, unit), b1 = b_.CreateFMul(b, unit);  // so that the sum stays finite
  Value t = b_.CreateFDiv(b_.CreateSelect(turn, b_.CreateFSub(a1, b1), a),
                          b_.CreateSelect(turn, b_.CreateFAdd(a1, b1), b));
  Value z = b_.CreateFMul(t, t);
  Value r = fma(b_.CreateFMul(t, z), poly(z, kAtan64), t);
  auto turned = [&](Value from, double part, Value r) {  // part of pi minus or plus r
    return b_.CreateFAdd(constant(from, kPi * part), b_.CreateFAdd(constant(from, kPiTail * part), r));
  };
  r = b_.CreateSelect(turn, turned(r, 0.25, r), r);
  return b_.CreateSelect(swap, turned(r, 0.5, b_.CreateFNeg(r)), r);
}

Math::Value Math::atan(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return atan(a[0]); });
  return copysign(atan_ratio(abs(x), constant(x, 1)), x);
}

Math::Value Math::atan2(Value y, Value x) const {
  if (!is_double(x)) return in_double({y, x}, [&](auto a) { return atan2(a[0], a[1]); });
  Value num = abs(y), den = abs(x);
  Value one = constant(x, 1), inf = constant(x, kInf), zero = constant(x, 0);
  Value both = b_.CreateAnd(b_.CreateFCmpOEQ(num, inf), b_.CreateFCmpOEQ(den, inf));
  num = b_.CreateSelect(both, one, num);
  den = b_.CreateSelect(both, one, den);
  Value none = b_.CreateAnd(b_.CreateFCmpOEQ(num, zero), b_.CreateFCmpOEQ(den, zero));
  Value r = atan_ratio(num, b_.CreateSelect(none, one, den));
  Value left = b_.CreateICmpSLT(bits(x), integer(x, 0));
  Value turned = b_.CreateFAdd(constant(x, kPi), b_.CreateFSub(constant(x, kPiTail), r));
  r = copysign(b_.CreateSelect(left, turned, r), y);
  return b_.CreateSelect(b_.CreateOr(is_nan(x), is_nan(y)), b_.CreateFAdd(x, y), r);
}

// ---- hyperbolic functions; e = exp(|x|)/2, halved in the exponent so that it overflows no sooner than the
// result

Math::Value Math::sinh(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return sinh(a[0]); });
  Value a = abs(x), z = b_.CreateFMul(x, x);
  Value near = fma(b_.CreateFMul(x, z), poly(z, kSinh64), x);
  Reduced r = reduce_ln2(clamp_exp(b_, a, true));
  Value e = scale(exp_reduced(r), b_.CreateFSub(r.n, constant(x, 1)));
  Value far = b_.CreateFSub(e, b_.CreateFDiv(constant(x, 0.25), e));
  return b_.CreateSelect(b_.CreateFCmpOLT(a, constant(x, 1)), near, copysign(far, x));
}

Math::Value Math::cosh(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return cosh(a[0]); });
  Reduced r = reduce_ln2(clamp_exp(b_, abs(x), true));
  Value e = scale(exp_reduced(r), b_.CreateFSub(r.n, constant(x, 1)));
  return b_.CreateFAdd(e, b_.CreateFDiv(constant(x, 0.25), e));
}

Math::Value Math::tanh(Value x) const {
  Value a = abs(x), two = constant(x, 2);
  if (is_double(x)) {  // t / (t + 2), t = e^2a - 1
    Value t = expm1(clamp(b_, b_.CreateFAdd(a, a), 0, 44));
    return copysign(ratio({t, nullptr}, two_sum(t, two)), x);
  }
  Value z = b_.CreateFMul(x, x);
  Value near = fma(b_.CreateFMul(x, z), poly(z, kTanh32), x);
  Value e = exp(b_.CreateFAdd(a, a));
  Value far = b_.CreateFSub(constant(x, 1), b_.CreateFDiv(two, b_.CreateFAdd(e, constant(x, 1))));
  return copysign(b_.CreateSelect(b_.CreateFCmpOLT(a, constant(x, 0.625)), near, far), x);
}

// ---- their inverses

// log1p(a + a^2/(1 + sqrt(1 + a^2))); past 2^28 it is log(2a).
Math::Value Math::asinh(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return asinh(a[0]); });
  Value a = abs(x), one = constant(x, 1), large = b_.CreateFCmpOGT(a, constant(x, 0x1p28));
  Value square = b_.CreateFMul(a, a);
  Value root = sqrt(b_.CreateFAdd(one, square));
  Value near = b_.CreateFAdd(a, b_.CreateFDiv(square, b_.CreateFAdd(one, root)));
  Value y = log1p(b_.CreateSelect(large, b_.CreateFSub(a, one), near));
  y = b_.CreateFAdd(y, b_.CreateSelect(large, constant(x, kLn2), constant(x, 0)));
  return copysign(y, x);
}

// log1p(t + sqrt(2t + t^2)) with t = x - 1, which is exact where the result is small.
Math::Value Math::acosh(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return acosh(a[0]); });
  Value t = b_.CreateFSub(x, constant(x, 1)), large = b_.CreateFCmpOGT(x, constant(x, 0x1p28));
  Value near = b_.CreateFAdd(t, sqrt(fma(t, t, b_.CreateFAdd(t, t))));
  Value y = log1p(b_.CreateSelect(large, t, near));
  y = b_.CreateFAdd(y, b_.CreateSelect(large, constant(x, kLn2), constant(x, 0)));
  return b_.CreateSelect(b_.CreateFCmpOLT(x, constant(x, 1)), constant(x, kNan), y);
}

// log1p(2a/(1 - a)) / 2; below a half the quotient is taken apart, so that the large part of it is exact.
Math::Value Math::atanh(Value x) const {
  Value a = abs(x), rest = b_.CreateFSub(constant(x, 1), a), twice = b_.CreateFAdd(a, a);
  Value small = fma(twice, b_.CreateFDiv(a, rest), twice);
  Value t = b_.CreateSelect(b_.CreateFCmpOLT(a, constant(x, 0.5)), small, b_.CreateFDiv(twice, rest));
  return copysign(b_.CreateFMul(constant(x, 0.5), log1p(t)), x);
}

// ---- error function

// float, |x| >= 0.92: 1 - e^-g(|x|)
Math::Value Math::erf(Value x) const {
  const bool dbl = is_double(x);
  Value a = abs(x), z = b_.CreateFMul(x, x), one = constant(x, 1);
  Value near = fma(x, dbl ? poly(z, kErf64) : poly(z, kErf32), x);
  Value limited = b_.CreateSelect(b_.CreateFCmpOGT(a, constant(x, 3.95)), constant(x, 3.95), a);
  Value rest = dbl ? erfc_scaled(a) : exp(b_.CreateFNeg(poly(limited, kErfLog32)));
  Value far = copysign(b_.CreateFSub(one, rest), x);
  return b_.CreateSelect(b_.CreateFCmpOLT(a, constant(x, 0.92)), near, far);
}

// erfc(a) = e^-a^2 P((a-k)/(a+k)) / (1+2a), k = 4 or, of floats, 1.5. The square's rounding error goes into
// the exponential; the exponential, P and their product keep what their last rounding lost, or three
// roundings add up to 3 ulp.
Math::Split Math::erfc_factor(Value a) const {
  const bool dbl = is_double(a);
  const std::span<const double> series = dbl ? std::span<const double>(kErfc64) : kErfc32;
  Value middle = constant(a, dbl ? 4 : 1.5), first = constant(a, series[0]);
  Value q = b_.CreateFDiv(b_.CreateFSub(a, middle), b_.CreateFAdd(a, middle));
  Value rest = poly(q, series.subspan(1));
  Split p{fma(q, rest, first), nullptr};
  p.lo = fma(q, rest, b_.CreateFSub(first, p.hi));
  return p;
}

Math::Value Math::erfc_scaled(Value a) const {
  Value one = constant(a, 1), most = constant(a, is_double(a) ? 28 : 11);
  Value limited = b_.CreateSelect(b_.CreateFCmpOGT(a, most), most, a);
  Split p = erfc_factor(limited);
  Split square = two_prod(limited, limited);
  Reduced r = reduce_ln2(b_.CreateFNeg(square.hi));
  Split e = fast_two_sum(one, fma(b_.CreateFMul(r.hi, r.hi), exp_tail(r.hi), r.hi));
  e.lo = fnma(e.hi, b_.CreateFSub(square.lo, r.lo), e.lo);
  Split n = two_prod(e.hi, p.hi);
  n.lo = fma(e.hi, p.lo, fma(e.lo, p.hi, n.lo));
  return scale(ratio(n, fast_two_sum(one, b_.CreateFAdd(limited, limited))), r.n);
}

// Of a float x below 0 it is 2^-q(|x|), and 1 less that above; q = 1 + a p(a). What is left of q by a whole
// number is computed with one rounding. Where a is limited, 2^-q is 0.
Math::Value Math::ndtr(Value x) const {
  const Value half = constant(x, 0.5), one = constant(x, 1);
  if (is_double(x)) return b_.CreateFMul(half, erfc(b_.CreateFMul(x, constant(x, -M_SQRT1_2))));
  Value a = abs(x), most = constant(x, 10.5);
  a = b_.CreateSelect(b_.CreateFCmpOGT(a, most), most, a);
  Value p = poly(a, kNdtr32), n = round_even(fma(a, p, constant(x, -1)));
  Value below = scale(exp2_reduced(fma(a, p, b_.CreateFSub(constant(x, -1), n))), n);
  return b_.CreateSelect(b_.CreateFCmpOLT(x, constant(x, 0)), below, b_.CreateFSub(one, below));
}

Math::Value Math::erfc(Value x) const {
  Value a = abs(x), z = b_.CreateFMul(x, x), one = constant(x, 1);
  Value near = b_.CreateFSub(one, fma(x, is_double(x) ? poly(z, kErf64) : poly(z, kErf32), x));
  Value tail = erfc_scaled(a);
  Value far = b_.CreateSelect(b_.CreateFCmpOLT(x, constant(x, 0)), b_.CreateFSub(constant(x, 2), tail), tail);
  return b_.CreateSelect(b_.CreateFCmpOLT(a, constant(x, 0.3)), near, far);
}

// e^(x^2) erfc(x), near 0 as it stands. Far out 1 - 1/(2x^2) + 3/(2x^2)^2 - ... over x sqrt(pi); of negative
// numbers 2 e^(x^2) less what the opposite has, where the square's rounding error is put back.
Math::Value Math::erfcx(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return erfcx(a[0]); });
  Value a = abs(x), one = constant(x, 1), z = b_.CreateFDiv(constant(x, 0.5), b_.CreateFMul(a, a));
  auto at_most = [&](double most) {
    return b_.CreateSelect(b_.CreateFCmpOGT(a, constant(x, most)), constant(x, most), a);
  };
  Value limited = at_most(28);
  Value middle = ratio(erfc_factor(limited), fast_two_sum(one, b_.CreateFAdd(limited, limited)));
  constexpr double kSeries[] = {-1, 3, -15, 105, -945, 10395};
  Value first = b_.CreateFDiv(constant(x, M_2_SQRTPI / 2), a);
  Value far = fma(first, b_.CreateFMul(z, poly(z, kSeries)), first);
  Value positive = b_.CreateSelect(b_.CreateFCmpOLT(a, constant(x, 28)), middle, far);
  Value beyond = at_most(27);  // where the result is infinite
  Split square = two_prod(beyond, beyond);
  Value e = exp(square.hi), infinity = constant(x, std::numeric_limits<double>::infinity());
  Value twice = b_.CreateFAdd(e, e);
  twice = b_.CreateSelect(b_.CreateFCmpOEQ(twice, infinity), twice, fma(twice, square.lo, twice));
  Value outside =
      b_.CreateSelect(b_.CreateFCmpOLT(x, constant(x, 0)), b_.CreateFSub(twice, positive), positive);
  Value near = b_.CreateFMul(e, b_.CreateFSub(one, fma(x, poly(square.hi, kErf64), x)));
  return b_.CreateSelect(b_.CreateFCmpOLT(a, constant(x, 0.3)), near, outside);
}

// x times a polynomial in w = -log(1 - x^2), or in its root near 1.
Math::Value Math::erfinv(Value x) const {
  Value one = constant(x, 1);
  Value w = b_.CreateFNeg(log(b_.CreateFMul(b_.CreateFSub(one, x), b_.CreateFAdd(one, x))));
  Value near = is_double(x) ? erfinv_near64(x, w) : times_poly(x, b_.CreateFSub(w, one), kErfinvNear32);
  Value is_far = b_.CreateFCmpOGT(w, constant(x, 6.25));
  Value y = when_any(is_far, near, [&](Value nearer) {
    Value s = sqrt(w), close = b_.CreateFSub(s, constant(x, 3.25));
    Value far = is_double(x) ? erfinv_far64(x, s) : times_poly(x, close, kErfinvFar32);
    return b_.CreateSelect(is_far, far, nearer);
  });
  Value infinity = constant(x, std::numeric_limits<double>::infinity());
  return copysign(b_.CreateSelect(b_.CreateFCmpOEQ(abs(x), one), infinity, y), x);
}

Math::Value Math::erfinv_near64(Value x, Value w) const {
  Value middle = poly(b_.CreateFSub(w, constant(x, 4)), kErfinvMiddle64);
  Value is_near = b_.CreateFCmpOLT(w, constant(x, 2));
  return b_.CreateFMul(x, b_.CreateSelect(is_near, poly(w, kErfinvNear64), middle));
}

Math::Value Math::erfinv_far64(Value x, Value s) const {
  Value far = poly(b_.CreateFSub(s, constant(x, 3.25)), kErfinvFar64);
  Value farthest = poly(b_.CreateFSub(s, constant(x, 5)), kErfinvFarthest64);
  return b_.CreateFMul(x, b_.CreateSelect(b_.CreateFCmpOLT(s, constant(x, 4)), far, farthest));
}

// The last step of Horner's rule keeps what it rounds off, so that only the product is rounded.
Math::Value Math::times_poly(Value x, Value z, std::span<const double> c) const {
  Split step = two_prod(z, poly(z, c.subspan(1)));
  Split sum = fast_two_sum(constant(x, c[0]), step.hi);
  return fma(x, sum.hi, b_.CreateFMul(x, b_.CreateFAdd(sum.lo, step.lo)));
}

// ---- log |gamma(x)|, in double

// (x - 1/2) (log(x + g - 1/2) - 1) + log(Lanczos' sum); left of 1/2 the reflected number's, which is taken
// off log(pi / |sin(pi x)|). A sine's argument is what is left of x by whole numbers, which is exact.
Math::Value Math::lgamma(Value x) const {
  if (!is_double(x)) return in_double({x}, [&](auto a) { return lgamma(a[0]); });
  Value one = constant(x, 1), half = constant(x, 0.5), zero = constant(x, 0);
  Value reflects = b_.CreateFCmpOLT(x, half), z = b_.CreateSelect(reflects, b_.CreateFSub(one, x), x);
  Value inverse = b_.CreateFDiv(one, z);
  Value sum = b_.CreateFDiv(poly(inverse, kLanczosTop64), poly(inverse, kLanczosBottom64));
  constexpr double kShift = 6.024680040776729583740234375 - 0.5;
  Value slope = b_.CreateFSub(log(b_.CreateFAdd(z, constant(x, kShift))), one);
  Value right = fma(b_.CreateFSub(z, half), slope, log(sum));
  Value rest = abs(b_.CreateFSub(x, round_even(x)));
  Value wave = b_.CreateFMul(abs(sin(b_.CreateFMul(rest, constant(x, M_PI)))), constant(x, M_1_PI));
  wave = b_.CreateSelect(b_.CreateFCmpOLT(rest, constant(x, 0x1p-27)), rest, wave);
  Value left = b_.CreateFNeg(b_.CreateFAdd(log(wave), right));
  Value y = b_.CreateSelect(reflects, left, right);
  Value infinity = constant(x, std::numeric_limits<double>::infinity());
  Value is_pole = b_.CreateAnd(b_.CreateFCmpOLE(x, zero), b_.CreateFCmpOEQ(rest, zero));
  y = b_.CreateSelect(b_.CreateOr(is_pole, b_.CreateFCmpOEQ(abs(x), infinity)), infinity, y);
  Value is_root = b_.CreateOr(b_.CreateFCmpOEQ(x, one), b_.CreateFCmpOEQ(x, constant(x, 2)));
  return b_.CreateSelect(is_root, zero, y);
}

// ---- powers

Math::Value Math::rsqrt(Value x) const { return b_.CreateFDiv(constant(x, 1), sqrt(x)); }

// log2(x) in two parts, ~2^-68: log(1+f) = 2s + s^3 (2/3 + 2/5 s^2 + ...), everything down to the first
// coefficient in two parts.
Math::Split Math::log2_split(Value x) const {
  Mantissa m = mantissa(x);
  Split d = fast_two_sum(constant(x, 2), m.f);
  Value s = b_.CreateFDiv(m.f, d.hi);
  Value s_lo = b_.CreateFDiv(fnma(s, d.lo, fnma(s, d.hi, m.f)), d.hi);
  Split z = two_prod(s, s);
  z.lo = fma(b_.CreateFAdd(s, s), s_lo, z.lo);
  std::vector<double> series;  // 2/5, 2/7, ...
  for (int k = 5; k <= 29; k += 2) series.push_back(2.0 / k);
  Split c = fast_two_sum(constant(x, 2.0 / 3), b_.CreateFMul(z.hi, poly(z.hi, series)));
  c.lo = b_.CreateFAdd(c.lo, constant(x, 0x1.5555555555555p-55));
  Split u = two_prod(z.hi, c.hi);
  u.lo = fma(z.hi, c.lo, fma(z.lo, c.hi, u.lo));
  Split v = two_prod(s, u.hi);
  v.lo = fma(s, u.lo, fma(s_lo, u.hi, v.lo));
  Split ln = fast_two_sum(b_.CreateFAdd(s, s), v.hi);
  ln.lo = b_.CreateFAdd(ln.lo, fma(constant(x, 2), s_lo, v.lo));
  Split w = two_prod(ln.hi, constant(x, kInvLn2));
  w.lo = fma(ln.hi, constant(x, kInvLn2Tail), fma(ln.lo, constant(x, kInvLn2), w.lo));
  Split sum = fast_two_sum(m.e, w.hi);
  sum.lo = b_.CreateFAdd(sum.lo, w.lo);
  return fast_two_sum(sum.hi, sum.lo);
}

Math::Value Math::pow(Value x, Value y) const {
  Value a = abs(x), one = constant(x, 1), zero = constant(x, 0), inf = constant(x, kInf);
  Value r;
  if (is_double(x)) {
    Split l = log2_split(a);
    Value regular = b_.CreateAnd(b_.CreateFCmpOGT(a, zero), b_.CreateFCmpOLT(a, inf));
    Value head = b_.CreateSelect(regular, l.hi, log_special(a, l.hi));
    Split e = two_prod(y, head);
    e.lo = fma(y, l.lo, e.lo);
    Value tame = b_.CreateAnd(regular, b_.CreateFCmpOLT(abs(e.hi), constant(x, 1100)));
    e.lo = b_.CreateSelect(tame, e.lo, zero);
    Value bounded = clamp(b_, e.hi, -1100, 1030);
    Value n = round_even(bounded);
    Value t = b_.CreateFMul(b_.CreateFAdd(b_.CreateFSub(bounded, n), e.lo), constant(x, kLn2));
    r = scale(exp_reduced({n, t, nullptr}), n);
  } else {
    r = in_double({a, y}, [&](auto v) {
      return exp2(b_.CreateFMul(v[1], b_.CreateFMul(log_rough(v[0]), constant(v[0], kInvLn2))));
    });
  }
  Value is_one = b_.CreateFCmpOEQ(a, one), far = b_.CreateFCmpOEQ(abs(y), inf);
  Value to_one = b_.CreateOr(b_.CreateFCmpOEQ(y, zero), b_.CreateFCmpOEQ(x, one));
  r = b_.CreateSelect(b_.CreateOr(to_one, b_.CreateAnd(is_one, far)), one, r);
  Value whole = b_.CreateFCmpOEQ(round_even(y), y);
  Value half = b_.CreateFMul(y, constant(y, 0.5));
  Value odd = b_.CreateAnd(whole, b_.CreateFCmpONE(round_even(half), half));
  Value negative = b_.CreateICmpSLT(bits(x), integer(x, 0));
  r = b_.CreateSelect(b_.CreateAnd(negative, odd), b_.CreateFNeg(r), r);
  Value below = b_.CreateAnd(b_.CreateFCmpOLT(x, zero), b_.CreateFCmpONE(x, b_.CreateFNeg(inf)));
  return b_.CreateSelect(b_.CreateAnd(below, b_.CreateNot(whole)), constant(x, kNan), r);
}

}  // namespace bolt::codegen::cpu

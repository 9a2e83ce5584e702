// codegen/cpu/ops.cpp
// See ops.h. What each operation means is written in graph/ops.def; comments here are about how.

#include "codegen/cpu/ops.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "support/error.h"
#include "support/philox.h"

namespace bolt::codegen::cpu {

using llvm::Intrinsic::ID;
using loops::ReduceOp;
using loops::ScalarOp;

namespace {

/// A value of 64 bits that has no sign, as philox.h computes with it.
struct UnsignedWord {
  Builder& b;
  llvm::Value* value;

  UnsignedWord made(llvm::Value* v) const { return {b, v}; }
  UnsignedWord whole(uint64_t v) const { return made(llvm::ConstantInt::get(value->getType(), v)); }
  UnsignedWord& operator=(const UnsignedWord& other) {
    value = other.value;
    return *this;
  }
  UnsignedWord(const UnsignedWord&) = default;
  UnsignedWord(Builder& builder, llvm::Value* v) : b(builder), value(v) {}
};
UnsignedWord operator*(UnsignedWord x, UnsignedWord y) { return x.made(x.b.CreateMul(x.value, y.value)); }
UnsignedWord operator+(UnsignedWord x, UnsignedWord y) { return x.made(x.b.CreateAdd(x.value, y.value)); }
UnsignedWord operator^(UnsignedWord x, UnsignedWord y) { return x.made(x.b.CreateXor(x.value, y.value)); }
UnsignedWord operator/(UnsignedWord x, UnsignedWord y) { return x.made(x.b.CreateUDiv(x.value, y.value)); }
UnsignedWord operator%(UnsignedWord x, UnsignedWord y) { return x.made(x.b.CreateURem(x.value, y.value)); }
UnsignedWord operator*(UnsignedWord x, uint64_t y) { return x * x.whole(y); }
UnsignedWord operator+(UnsignedWord x, uint64_t y) { return x + x.whole(y); }
UnsignedWord operator&(UnsignedWord x, uint64_t y) {
  return x.made(x.b.CreateAnd(x.value, x.whole(y).value));
}
UnsignedWord operator>>(UnsignedWord x, int y) {
  return x.made(x.b.CreateLShr(x.value, x.whole(static_cast<uint64_t>(y)).value));
}

llvm::Type* with_lanes(llvm::Type* element, unsigned lanes) {
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
}

}  // namespace

llvm::Type* Ops::type(DType t, unsigned lanes) const {
  if (is_opaque(t)) throw_unsupported(dtype_name(t), " in a fused kernel");
  switch (t) {
    case DType::Bool: return with_lanes(b_.getInt1Ty(), lanes);
    case DType::F32: return with_lanes(b_.getFloatTy(), lanes);
    case DType::F64: return with_lanes(b_.getDoubleTy(), lanes);
    default: return with_lanes(b_.getIntNTy(dtype_bytes(t) * 8), lanes);
  }
}

llvm::Type* Ops::memory_type(DType t, unsigned lanes) const {
  return t == DType::Bool ? with_lanes(b_.getInt8Ty(), lanes) : type(t, lanes);
}

Ops::Value Ops::from_memory(Value v, DType t) const {
  return t == DType::Bool ? b_.CreateICmpNE(v, zero(v)) : v;
}

Ops::Value Ops::to_memory(Value v, DType t) const {
  return t == DType::Bool ? b_.CreateZExt(v, math_.with_element(v, b_.getInt8Ty())) : v;
}

Ops::Value Ops::splat(Value scalar, unsigned lanes) const {
  return lanes == 1 || scalar->getType()->isVectorTy() ? scalar : b_.CreateVectorSplat(lanes, scalar);
}

Ops::Value Ops::constant(DType t, double value, int64_t ivalue) const {
  if (t == DType::F32 || t == DType::F64) return llvm::ConstantFP::get(type(t, 1), value);
  if (is_half(t)) {
    llvm::APFloat number(value);
    bool inexact;
    number.convert(t == DType::F16 ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat(),
                   llvm::APFloat::rmNearestTiesToEven, &inexact);
    return b_.getInt16(static_cast<uint16_t>(number.bitcastToAPInt().getZExtValue()));
  }
  if (t == DType::Bool) return b_.getInt1(ivalue != 0);
  return llvm::ConstantInt::get(type(t, 1), static_cast<uint64_t>(ivalue), /*IsSigned=*/true);
}

// ---- casts

// bf16 and f16 with F16C are conversions of bits; f16 without it goes through integer arithmetic.
Ops::Value Ops::half_to_float(Value v, DType from) const {
  llvm::Type* i32 = math_.with_element(v, b_.getInt32Ty());
  llvm::Type* f32 = math_.with_element(v, b_.getFloatTy());
  auto number = [&](int64_t n) { return llvm::ConstantInt::get(i32, static_cast<uint64_t>(n)); };
  if (from == DType::BF16) return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(v, i32), number(16)), f32);
  if (target_.f16c) return b_.CreateFPExt(b_.CreateBitCast(v, math_.with_element(v, b_.getHalfTy())), f32);
  // Exponent and mantissa moved into place, then multiplied by 2^112: right for denormals too; infinity and
  // NaN apart.
  Value wide = b_.CreateZExt(v, i32);
  Value magnitude = b_.CreateShl(b_.CreateAnd(wide, number(0x7fff)), number(13));
  Value scaled = b_.CreateFMul(b_.CreateBitCast(magnitude, f32), llvm::ConstantFP::get(f32, 0x1p112));
  Value special = b_.CreateICmpUGE(magnitude, number(0x7c00ll << 13));
  Value bits =
      b_.CreateSelect(special, b_.CreateOr(magnitude, number(0x7f800000)), b_.CreateBitCast(scaled, i32));
  Value sign = b_.CreateShl(b_.CreateAnd(wide, number(0x8000)), number(16));
  return b_.CreateBitCast(b_.CreateOr(bits, sign), f32);
}

Ops::Value Ops::float_to_half(Value v, DType to) const {
  llvm::Type* i32 = math_.with_element(v, b_.getInt32Ty());
  llvm::Type* i16 = math_.with_element(v, b_.getInt16Ty());
  llvm::Type* f32 = v->getType();
  auto number = [&](int64_t n) { return llvm::ConstantInt::get(i32, static_cast<uint64_t>(n)); };
  Value bits = b_.CreateBitCast(v, i32);
  if (to == DType::BF16) {
    // Round to nearest even by adding half an ulp less one, plus the last kept bit. (vcvtneps2bf16 flushes
    // denormals.)
    Value odd = b_.CreateAnd(b_.CreateLShr(bits, number(16)), number(1));
    Value rounded = b_.CreateAdd(bits, b_.CreateAdd(odd, number(0x7fff)));
    rounded = b_.CreateSelect(math_.is_nan(v), number(0x7fc00000), rounded);
    return b_.CreateTrunc(b_.CreateLShr(rounded, number(16)), i16);
  }
  if (target_.f16c) return b_.CreateBitCast(b_.CreateFPTrunc(v, math_.with_element(v, b_.getHalfTy())), i16);
  // Adding a number whose ulp is the result's rounds in hardware; the sum's low bits are the result.
  Value magnitude = b_.CreateAnd(bits, number(0x7fffffff));
  Value exponent = b_.CreateAnd(magnitude, number(0x7f800000));
  Value floor = number((127ll - 14) << 23);  // below 2^-14 results are denormal with a fixed ulp
  exponent = b_.CreateSelect(b_.CreateICmpULT(exponent, floor), floor, exponent);
  Value magic = b_.CreateBitCast(b_.CreateAdd(exponent, number(13ll << 23)), f32);
  Value sum = b_.CreateBitCast(b_.CreateFAdd(b_.CreateBitCast(magnitude, f32), magic), i32);
  Value mantissa = b_.CreateSub(sum, b_.CreateBitCast(magic, i32));  // with the hidden bit when normal
  Value field = b_.CreateLShr(b_.CreateSub(exponent, floor), number(13));
  Value result = b_.CreateAdd(field, mantissa);
  result = b_.CreateSelect(b_.CreateICmpUGE(magnitude, number(0x477ff000)), number(0x7c00), result);
  result = b_.CreateSelect(math_.is_nan(v), number(0x7e00), result);
  Value sign = b_.CreateAnd(b_.CreateLShr(bits, number(16)), number(0x8000));
  return b_.CreateTrunc(b_.CreateOr(result, sign), i16);
}

Ops::Value Ops::narrowed(Value v, DType to) const {
  if (to != DType::BF16) return float_to_half(v, to);
  Value bits = b_.CreateBitCast(v, math_.with_element(v, b_.getInt32Ty()));
  Value upper = b_.CreateLShr(bits, llvm::ConstantInt::get(bits->getType(), 16));
  return b_.CreateTrunc(upper, math_.with_element(v, b_.getInt16Ty()));
}

Ops::Value Ops::cast(Value v, DType from, DType to) const {
  if (from == to) return v;
  if (is_half(from)) return cast(half_to_float(v, from), DType::F32, to);
  if (is_half(to)) return float_to_half(cast(v, from, DType::F32), to);
  llvm::Type* target = math_.with_element(v, type(to, 1));
  if (to == DType::Bool) return is_float(from) ? b_.CreateFCmpUNE(v, zero(v)) : b_.CreateICmpNE(v, zero(v));
  if (is_float(from) && is_float(to)) return b_.CreateFPCast(v, target);
  if (is_float(to)) return is_signed_int(from) ? b_.CreateSIToFP(v, target) : b_.CreateUIToFP(v, target);
  if (is_float(from)) {  // narrow integers wrap from a wider one, as x86 code compiled from C++ does
    llvm::Type* wide =
        math_.with_element(v, to == DType::I64 || to == DType::U8 ? b_.getInt64Ty() : b_.getInt32Ty());
    return b_.CreateTruncOrBitCast(b_.CreateFPToSI(v, wide), target);
  }
  return is_signed_int(from) ? b_.CreateSExtOrTrunc(v, target) : b_.CreateZExtOrTrunc(v, target);
}

// ---- operations

Ops::Value Ops::compare(ScalarOp op, DType t, Value a, Value b) const {
  using P = llvm::CmpInst::Predicate;
  const bool fp = is_float(t), sign = is_signed_int(t);
  auto pick = [&](P f, P s, P u) { return fp ? b_.CreateFCmp(f, a, b) : b_.CreateICmp(sign ? s : u, a, b); };
  switch (op) {
    case ScalarOp::eq: return pick(P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ);
    case ScalarOp::ne: return pick(P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE);
    case ScalarOp::lt: return pick(P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT);
    case ScalarOp::le: return pick(P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE);
    case ScalarOp::gt: return pick(P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT);
    default: return pick(P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE);
  }
}

// Division by zero and INT_MIN / -1 must not trap: the result is then 0 and the wrapped negation.
Ops::Value Ops::integer_divide(ScalarOp op, bool is_signed, Value a, Value b) const {
  Value none = zero(b), one = llvm::ConstantInt::get(b->getType(), 1),
        minus = llvm::Constant::getAllOnesValue(b->getType());
  Value by_zero = b_.CreateICmpEQ(b, none);
  if (!is_signed) {
    Value safe = b_.CreateSelect(by_zero, one, b);
    const bool quotient = op == ScalarOp::floor_div || op == ScalarOp::trunc_div;
    Value r = quotient ? b_.CreateUDiv(a, safe) : b_.CreateURem(a, safe);
    return b_.CreateSelect(by_zero, none, r);
  }
  Value negate = b_.CreateICmpEQ(b, minus);
  Value safe = b_.CreateSelect(b_.CreateOr(by_zero, negate), one, b);
  Value q = b_.CreateSDiv(a, safe);
  Value r = b_.CreateSub(a, b_.CreateMul(q, safe));
  q = b_.CreateSelect(negate, b_.CreateNeg(a), q);
  Value opposite = b_.CreateICmpSLT(b_.CreateXor(r, b), none);
  Value adjust = b_.CreateAnd(opposite, b_.CreateICmpNE(r, none));
  Value result = nullptr;
  switch (op) {
    case ScalarOp::trunc_div: result = q; break;
    case ScalarOp::fmod: result = r; break;
    case ScalarOp::floor_div: result = b_.CreateSelect(adjust, b_.CreateSub(q, one), q); break;
    default: result = b_.CreateSelect(adjust, b_.CreateAdd(r, b), r); break;
  }
  return b_.CreateSelect(by_zero, none, result);
}

// By squaring; a negative exponent gives 0 except for the bases 1 and -1.
Ops::Value Ops::integer_power(Value base, Value exponent, bool is_signed) const {
  llvm::Type* t = base->getType();
  const unsigned width = t->getScalarSizeInBits();
  Value one = llvm::ConstantInt::get(t, 1), result = one, square = base;
  for (unsigned bit = 0; bit < width - (is_signed ? 1 : 0); ++bit) {
    Value set =
        b_.CreateICmpNE(b_.CreateAnd(exponent, llvm::ConstantInt::get(t, uint64_t{1} << bit)), zero(base));
    result = b_.CreateSelect(set, b_.CreateMul(result, square), result);
    square = b_.CreateMul(square, square);
  }
  if (!is_signed) return result;
  Value minus = llvm::Constant::getAllOnesValue(t);
  Value odd = b_.CreateICmpNE(b_.CreateAnd(exponent, one), zero(base));
  Value inverse = b_.CreateSelect(b_.CreateICmpEQ(base, one), one, zero(base));
  inverse = b_.CreateSelect(b_.CreateICmpEQ(base, minus), b_.CreateSelect(odd, minus, one), inverse);
  return b_.CreateSelect(b_.CreateICmpSLT(exponent, zero(base)), inverse, result);
}

Ops::Value Ops::shift(bool left, bool is_signed, Value a, Value b) const {
  const unsigned width = a->getType()->getScalarSizeInBits();
  Value limit = llvm::ConstantInt::get(a->getType(), width),
        last = llvm::ConstantInt::get(a->getType(), width - 1);
  Value inside = b_.CreateICmpULT(b, limit);
  Value amount = b_.CreateSelect(inside, b, last);
  if (left) return b_.CreateSelect(inside, b_.CreateShl(a, amount), zero(a));
  if (is_signed) return b_.CreateAShr(a, amount);
  return b_.CreateSelect(inside, b_.CreateLShr(a, amount), zero(a));
}

/// (seed, offset, threads, vector, position); see support/philox.h.
Ops::Value Ops::random(llvm::ArrayRef<Value> a) const {
  auto word = [&](size_t i) { return UnsignedWord(b_, a[i]); };
  const philox::Drawn<UnsignedWord> drawn = philox::drawn_at(word(0), word(1), word(2), word(3), word(4));
  Value bits = drawn.four[3].value;
  for (uint64_t i = 0; i < 3; ++i)
    bits = b_.CreateSelect(b_.CreateICmpEQ(drawn.which.value, drawn.which.whole(i).value),
                           drawn.four[i].value, bits);
  const auto to = math_.with_element(a[0], b_.getFloatTy());
  auto real = [&](double v) { return llvm::ConstantFP::get(to, v); };
  return b_.CreateFAdd(b_.CreateFMul(b_.CreateUIToFP(bits, to), real(0x1p-32)), real(0x1p-33));
}

Ops::Value Ops::integral(ScalarOp op, DType t, llvm::ArrayRef<Value> a) const {
  const bool sign = is_signed_int(t), boolean = t == DType::Bool;
  Value none = zero(a[0]);
  switch (op) {
    case ScalarOp::neg: return b_.CreateNeg(a[0]);
    case ScalarOp::abs:
      return sign ? b_.CreateSelect(b_.CreateICmpSLT(a[0], none), b_.CreateNeg(a[0]), a[0]) : a[0];
    case ScalarOp::sign: {
      Value positive =
          b_.CreateZExt(b_.CreateICmp(sign ? llvm::CmpInst::ICMP_SGT : llvm::CmpInst::ICMP_UGT, a[0], none),
                        a[0]->getType());
      return sign ? b_.CreateSub(positive, b_.CreateZExt(b_.CreateICmpSLT(a[0], none), a[0]->getType()))
                  : positive;
    }
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::trunc:
    case ScalarOp::round: return a[0];
    case ScalarOp::bitwise_not: return b_.CreateNot(a[0]);
    case ScalarOp::from_bits: return b_.CreateBitCast(a[0], math_.with_element(a[0], b_.getDoubleTy()));
    case ScalarOp::random: return random(a);
    case ScalarOp::isnan:
    case ScalarOp::isinf: return llvm::Constant::getNullValue(math_.with_element(a[0], b_.getInt1Ty()));
    case ScalarOp::add: return boolean ? b_.CreateOr(a[0], a[1]) : b_.CreateAdd(a[0], a[1]);
    case ScalarOp::sub: return b_.CreateSub(a[0], a[1]);
    case ScalarOp::mul: return b_.CreateMul(a[0], a[1]);
    case ScalarOp::fma: return b_.CreateAdd(b_.CreateMul(a[0], a[1]), a[2]);
    case ScalarOp::floor_div:
    case ScalarOp::trunc_div:
    case ScalarOp::remainder:
    case ScalarOp::fmod: return integer_divide(op, sign, a[0], a[1]);
    case ScalarOp::pow: return integer_power(a[0], a[1], sign);
    case ScalarOp::maximum:
    case ScalarOp::fmax: return b_.CreateSelect(compare(ScalarOp::gt, t, a[0], a[1]), a[0], a[1]);
    case ScalarOp::minimum:
    case ScalarOp::fmin: return b_.CreateSelect(compare(ScalarOp::lt, t, a[0], a[1]), a[0], a[1]);
    case ScalarOp::bitwise_and: return b_.CreateAnd(a[0], a[1]);
    case ScalarOp::bitwise_or: return b_.CreateOr(a[0], a[1]);
    case ScalarOp::bitwise_xor: return b_.CreateXor(a[0], a[1]);
    case ScalarOp::shift_left: return shift(true, sign, a[0], a[1]);
    case ScalarOp::shift_right: return shift(false, sign, a[0], a[1]);
    default: BOLT_CHECK(false, "scalar operation ", static_cast<int>(op), " on ", dtype_name(t));
  }
  return nullptr;
}

namespace {

/// A constant other than NaN, in every lane.
bool is_number(llvm::Value* v) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(v);
  if (constant && constant->getType()->isVectorTy()) constant = constant->getSplatValue();
  auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return number && !number->isNaN();
}

bool is_compare(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }  // rows that stand together

/// fmod with the divisor's sign.
llvm::Value* float_remainder(Builder& b, const Math& m, llvm::Value* x, llvm::Value* y) {
  llvm::Value* zero = llvm::Constant::getNullValue(x->getType());
  llvm::Value* r = m.fmod(x, y);
  llvm::Value* differ = b.CreateXor(b.CreateFCmpOLT(r, zero), b.CreateFCmpOLT(y, zero));
  return b.CreateSelect(b.CreateAnd(differ, b.CreateFCmpUNE(r, zero)), b.CreateFAdd(r, y), r);
}

/// As ATen's div_floor: (x - remainder) / y, rounded to the nearest whole number; x / 0 is the true quotient.
llvm::Value* float_floor_div(Builder& b, const Math& m, llvm::Value* x, llvm::Value* y) {
  llvm::Value *zero = m.constant(x, 0), *one = m.constant(x, 1), *quotient = b.CreateFDiv(x, y);
  llvm::Value* r = m.fmod(x, y);
  llvm::Value* d = b.CreateFDiv(b.CreateFSub(x, r), y);
  llvm::Value* differ = b.CreateXor(b.CreateFCmpOLT(r, zero), b.CreateFCmpOLT(y, zero));
  d = b.CreateSelect(b.CreateAnd(differ, b.CreateFCmpUNE(r, zero)), b.CreateFSub(d, one), d);
  llvm::Value* whole = m.unary(llvm::Intrinsic::floor, d);
  llvm::Value* up = b.CreateFCmpOGT(b.CreateFSub(d, whole), m.constant(x, 0.5));
  whole = b.CreateSelect(up, b.CreateFAdd(whole, one), whole);
  whole = b.CreateSelect(b.CreateFCmpOEQ(d, zero), m.copysign(zero, quotient), whole);
  return b.CreateSelect(b.CreateFCmpOEQ(y, zero), quotient, whole);
}

}  // namespace

Ops::Value Ops::floating(ScalarOp op, llvm::ArrayRef<Value> a) const {
  const Math& m = math_;
  Value x = a[0], y = a.size() > 1 ? a[1] : nullptr;
  switch (op) {
    case ScalarOp::neg: return b_.CreateFNeg(x);
    case ScalarOp::abs: return m.abs(x);
    case ScalarOp::sign: {
      Value up = b_.CreateUIToFP(b_.CreateFCmpOGT(x, zero(x)), x->getType());
      return b_.CreateFSub(up, b_.CreateUIToFP(b_.CreateFCmpOLT(x, zero(x)), x->getType()));
    }
    case ScalarOp::floor: return m.unary(llvm::Intrinsic::floor, x);
    case ScalarOp::ceil: return m.unary(llvm::Intrinsic::ceil, x);
    case ScalarOp::trunc: return m.unary(llvm::Intrinsic::trunc, x);
    case ScalarOp::round: return m.round_even(x);
    case ScalarOp::sqrt: return m.sqrt(x);
    case ScalarOp::rsqrt: return m.rsqrt(x);
    case ScalarOp::reciprocal: return b_.CreateFDiv(m.constant(x, 1), x);
    case ScalarOp::exp: return m.exp(x);
    case ScalarOp::exp2: return m.exp2(x);
    case ScalarOp::expm1: return m.expm1(x);
    case ScalarOp::log: return m.log(x);
    case ScalarOp::log2: return m.log2(x);
    case ScalarOp::log10: return m.log10(x);
    case ScalarOp::log1p: return m.log1p(x);
    case ScalarOp::sin: return m.sin(x);
    case ScalarOp::cos: return m.cos(x);
    case ScalarOp::tan: return m.tan(x);
    case ScalarOp::asin: return m.asin(x);
    case ScalarOp::acos: return m.acos(x);
    case ScalarOp::atan: return m.atan(x);
    case ScalarOp::sinh: return m.sinh(x);
    case ScalarOp::cosh: return m.cosh(x);
    case ScalarOp::tanh: return m.tanh(x);
    case ScalarOp::asinh: return m.asinh(x);
    case ScalarOp::acosh: return m.acosh(x);
    case ScalarOp::atanh: return m.atanh(x);
    case ScalarOp::erf: return m.erf(x);
    case ScalarOp::erfc: return m.erfc(x);
    case ScalarOp::erfcx: return m.erfcx(x);
    case ScalarOp::ndtr: return m.ndtr(x);
    case ScalarOp::erfinv: return m.erfinv(x);
    case ScalarOp::lgamma: return m.lgamma(x);
    case ScalarOp::sigmoid: return m.sigmoid(x);
    case ScalarOp::isnan: return m.is_nan(x);
    case ScalarOp::isinf:
      return b_.CreateFCmpOEQ(m.abs(x), m.constant(x, std::numeric_limits<double>::infinity()));
    case ScalarOp::add: return b_.CreateFAdd(x, y);
    case ScalarOp::sub: return b_.CreateFSub(x, y);
    case ScalarOp::mul: return b_.CreateFMul(x, y);
    case ScalarOp::div: return b_.CreateFDiv(x, y);
    case ScalarOp::fma: return m.fma(x, y, a[2]);
    case ScalarOp::trunc_div: return m.unary(llvm::Intrinsic::trunc, b_.CreateFDiv(x, y));
    case ScalarOp::floor_div: return float_floor_div(b_, m, x, y);
    case ScalarOp::remainder: return float_remainder(b_, m, x, y);
    case ScalarOp::fmod: return m.fmod(x, y);
    case ScalarOp::pow: return m.pow(x, y);
    case ScalarOp::atan2: return m.atan2(x, y);
    case ScalarOp::copysign: return m.copysign(x, y);
    // Of zeros that differ in sign the first, as clamp and relu have it. These select what the machine's own
    // instruction does, which gives its second operand also beside a NaN: only another NaN is left to see to.
    case ScalarOp::maximum:
    case ScalarOp::minimum: {
      Value best =
          b_.CreateSelect(op == ScalarOp::maximum ? b_.CreateFCmpOGT(y, x) : b_.CreateFCmpOLT(y, x), y, x);
      return is_number(y) ? best : b_.CreateSelect(m.is_nan(y), y, best);
    }
    case ScalarOp::fmax: return b_.CreateSelect(b_.CreateOr(b_.CreateFCmpOGE(x, y), m.is_nan(y)), x, y);
    case ScalarOp::fmin: return b_.CreateSelect(b_.CreateOr(b_.CreateFCmpOLE(x, y), m.is_nan(y)), x, y);
    default: BOLT_CHECK(false, "scalar operation ", static_cast<int>(op), " on floating values");
  }
  return nullptr;
}

Ops::Value Ops::apply(ScalarOp op, DType operand, llvm::ArrayRef<Value> args, bool contract) const {
  if (op == ScalarOp::where) return b_.CreateSelect(args[0], args[1], args[2]);
  if (is_compare(op)) return compare(op, operand, args[0], args[1]);
  if (op == ScalarOp::logical_not) return b_.CreateNot(cast(args[0], operand, DType::Bool));
  if (!is_float(operand)) return integral(op, operand, args);
  llvm::IRBuilderBase::FastMathFlagGuard guard(b_);
  llvm::FastMathFlags flags;
  flags.setAllowContract(contract);
  b_.setFastMathFlags(flags);
  return floating(op, args);
}

// ---- reductions

Ops::Value Ops::identity(ReduceOp op, DType t) const {
  const bool fp = is_float(t);
  llvm::Type* ty = type(t, 1);
  constexpr double inf = std::numeric_limits<double>::infinity();
  const unsigned width = ty->getScalarSizeInBits();
  auto extreme = [&](bool high) -> Value {
    if (fp) return llvm::ConstantFP::get(ty, high ? inf : -inf);
    if (is_signed_int(t))
      return llvm::ConstantInt::get(
          ty, high ? llvm::APInt::getSignedMaxValue(width) : llvm::APInt::getSignedMinValue(width));
    return high ? llvm::Constant::getAllOnesValue(ty) : llvm::Constant::getNullValue(ty);
  };
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Any: return llvm::Constant::getNullValue(ty);
    case ReduceOp::Prod:
      return fp ? static_cast<Value>(llvm::ConstantFP::get(ty, 1)) : llvm::ConstantInt::get(ty, 1);
    case ReduceOp::All: return llvm::Constant::getAllOnesValue(ty);
    case ReduceOp::Max:
    case ReduceOp::LogAddExp:
    case ReduceOp::ArgMax: return extreme(false);
    case ReduceOp::Min:
    case ReduceOp::ArgMin: return extreme(true);
  }
  return nullptr;
}

Ops::Value Ops::combine(ReduceOp op, DType t, Value a, Value b) const {
  switch (op) {
    case ReduceOp::Sum: return apply(ScalarOp::add, t, {a, b}, true);
    case ReduceOp::Prod: return apply(ScalarOp::mul, t, {a, b}, true);
    case ReduceOp::Max: return apply(ScalarOp::maximum, t, {a, b});
    case ReduceOp::Min: return apply(ScalarOp::minimum, t, {a, b});
    case ReduceOp::Any: return b_.CreateOr(a, b);
    case ReduceOp::All: return b_.CreateAnd(a, b);
    case ReduceOp::LogAddExp: {  // of two infinities, whose difference is none, that of equals
      Value high = apply(ScalarOp::maximum, t, {a, b}), low = apply(ScalarOp::minimum, t, {a, b});
      Value below =
          b_.CreateSelect(b_.CreateFCmpOEQ(low, high), llvm::Constant::getNullValue(high->getType()),
                          apply(ScalarOp::sub, t, {low, high}));
      Value tail = apply(ScalarOp::log1p, t, {apply(ScalarOp::exp, t, {below})});
      return apply(ScalarOp::add, t, {high, tail});
    }
    default: BOLT_CHECK(false, "arg reductions carry positions");
  }
  return nullptr;
}

Ops::Value Ops::beats(ReduceOp op, DType t, Value x, Value y) const {
  Value better = compare(op == ReduceOp::ArgMax ? ScalarOp::gt : ScalarOp::lt, t, x, y);
  if (!is_float(t)) return better;
  return b_.CreateOr(better, b_.CreateAnd(math_.is_nan(x), b_.CreateNot(math_.is_nan(y))));
}

}  // namespace bolt::codegen::cpu

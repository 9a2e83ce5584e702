// codegen/cuda/ops.cpp
// See ops.h. Floating operations are CUDA's own functions in full precision (within 2 ulp); the compiler may
// contract a product and a sum into one fma where loops::may_contract says so, as on the CPU.
// Integers wrap: C++ leaves overflow open, so their arithmetic goes through the prelude.

#include "codegen/cuda/ops.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "loops/kernel_ops.h"
#include "support/error.h"

namespace bolt::codegen::cuda {

using loops::ReduceOp;
using loops::ScalarOp;

namespace {

std::string call(const std::string& f, const std::vector<std::string>& args) {
  std::string s = f + "(";
  for (size_t i = 0; i < args.size(); ++i) s += (i ? ", " : "") + args[i];
  return s + ")";
}

std::string real(DType t, double v) {
  const bool single = t != DType::F64;
  if (std::isnan(v))
    return single ? "__int_as_float(0x7fc00000)" : "__longlong_as_double(0x7ff8000000000000ll)";
  if (std::isinf(v)) {
    std::string inf = single ? "__int_as_float(0x7f800000)" : "__longlong_as_double(0x7ff0000000000000ll)";
    return v < 0 ? "(-" + inf + ")" : inf;
  }
  if (single) v = static_cast<float>(v);
  if (std::isinf(v)) return real(t, v);
  char text[40];
  std::snprintf(text, sizeof text, single ? "%.9g" : "%.17g", v);
  std::string s = text;
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  if (single) s += "f";
  return std::signbit(v) ? "(" + s + ")" : s;
}

std::string whole(DType t, int64_t v) {
  if (t == DType::Bool) return v ? "true" : "false";
  std::string s =
      v == std::numeric_limits<int64_t>::min() ? "(-9223372036854775807ll - 1)" : std::to_string(v) + "ll";
  if (t != DType::I64) return value_type(t) + "(" + s + ")";
  return v < 0 && s[0] == '-' ? "(" + s + ")" : s;
}

/// The operator between two operands; "" for what is spelled as a call.
std::string infix(ScalarOp op, DType t) {
  const bool fp = is_float(t);
  switch (op) {
    case ScalarOp::add: return fp ? " + " : "";
    case ScalarOp::sub: return fp ? " - " : "";
    case ScalarOp::mul: return fp ? " * " : "";
    case ScalarOp::div: return fp ? " / " : "";
    case ScalarOp::eq: return " == ";
    case ScalarOp::ne: return " != ";
    case ScalarOp::lt: return " < ";
    case ScalarOp::le: return " <= ";
    case ScalarOp::gt: return " > ";
    case ScalarOp::ge: return " >= ";
    default: return "";
  }
}

/// Functions of CUDA's library: the name with `f` behind it is the float32 one.
const char* library_function(ScalarOp op) {
  switch (op) {
    case ScalarOp::abs: return "fabs";
    case ScalarOp::floor: return "floor";
    case ScalarOp::ceil: return "ceil";
    case ScalarOp::trunc: return "trunc";
    case ScalarOp::round: return "rint";
    case ScalarOp::sqrt: return "sqrt";
    case ScalarOp::rsqrt: return "rsqrt";
    case ScalarOp::exp: return "exp";
    case ScalarOp::exp2: return "exp2";
    case ScalarOp::expm1: return "expm1";
    case ScalarOp::log: return "log";
    case ScalarOp::log2: return "log2";
    case ScalarOp::log10: return "log10";
    case ScalarOp::log1p: return "log1p";
    case ScalarOp::sin: return "sin";
    case ScalarOp::cos: return "cos";
    case ScalarOp::tan: return "tan";
    case ScalarOp::asin: return "asin";
    case ScalarOp::acos: return "acos";
    case ScalarOp::atan: return "atan";
    case ScalarOp::sinh: return "sinh";
    case ScalarOp::cosh: return "cosh";
    case ScalarOp::tanh: return "tanh";
    case ScalarOp::asinh: return "asinh";
    case ScalarOp::acosh: return "acosh";
    case ScalarOp::atanh: return "atanh";
    case ScalarOp::erf: return "erf";
    case ScalarOp::erfc: return "erfc";
    case ScalarOp::erfcx: return "erfcx";
    case ScalarOp::erfinv: return "erfinv";
    case ScalarOp::lgamma: return "lgamma";
    case ScalarOp::pow: return "pow";
    case ScalarOp::atan2: return "atan2";
    case ScalarOp::fmod: return "fmod";
    case ScalarOp::copysign: return "copysign";
    case ScalarOp::fma: return "fma";
    default: return nullptr;
  }
}

std::string floating(ScalarOp op, DType t, const std::vector<std::string>& a) {
  const std::string f = t == DType::F32 ? "f" : "";
  if (const char* name = library_function(op)) return call(name + f, a);
  switch (op) {
    case ScalarOp::neg: return "-" + a[0];
    case ScalarOp::reciprocal: return real(t, 1) + " / " + a[0];
    case ScalarOp::isnan: return a[0] + " != " + a[0];
    case ScalarOp::isinf:
      return "fabs" + f + "(" + a[0] + ") == " + real(t, std::numeric_limits<double>::infinity());
    case ScalarOp::trunc_div: return "trunc" + f + "(" + a[0] + " / " + a[1] + ")";
    // sigmoid, ndtr, sign, floor_div, remainder, maximum, minimum, fmax, fmin
    default: return call("bolt_" + std::string(loops::scalar_op_name(op)), a);
  }
}

std::string integral(ScalarOp op, DType t, const std::vector<std::string>& a) {
  switch (op) {
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::trunc:
    case ScalarOp::round: return a[0];
    case ScalarOp::isnan:
    case ScalarOp::isinf: return "false";
    case ScalarOp::from_bits: return call("__longlong_as_double", a);
    case ScalarOp::random: return call("random_number", a);
    case ScalarOp::bitwise_not: return t == DType::Bool ? "!" + a[0] : value_type(t) + "(~" + a[0] + ")";
    case ScalarOp::bitwise_and: return value_type(t) + "(" + a[0] + " & " + a[1] + ")";
    case ScalarOp::bitwise_or: return value_type(t) + "(" + a[0] + " | " + a[1] + ")";
    case ScalarOp::bitwise_xor: return value_type(t) + "(" + a[0] + " ^ " + a[1] + ")";
    case ScalarOp::fma: return call("bolt_add", {call("bolt_mul", {a[0], a[1]}), a[2]});
    default: return call("bolt_" + std::string(loops::scalar_op_name(op)), a);
  }
}

}  // namespace

std::string value_type(DType t) {
  switch (t) {
    case DType::Bool: return "bool";
    case DType::U8: return "u8";
    case DType::I8: return "i8";
    case DType::I16: return "i16";
    case DType::I32: return "int";
    case DType::I64: return "i64";
    case DType::F16: return "f16";
    case DType::BF16: return "bf16";
    case DType::F32: return "float";
    case DType::F64: return "double";
    default: throw_unsupported(dtype_name(t), " in a fused kernel");
  }
}

std::string memory_type(DType t) { return t == DType::Bool ? "u8" : value_type(t); }

std::string from_memory(DType t, const std::string& x) { return t == DType::Bool ? "(" + x + " != 0)" : x; }

std::string to_memory(DType t, const std::string& x) { return t == DType::Bool ? "u8(" + x + ")" : x; }

std::string constant(DType t, double value, int64_t ivalue) {
  if (is_half(t)) return cast(real(DType::F32, value), DType::F32, t);
  return is_float(t) ? real(t, value) : whole(t, ivalue);
}

std::string cast(const std::string& x, DType from, DType to) {
  if (from == to) return x;
  if (is_half(from)) return cast("from_" + value_type(from) + "(" + x + ")", DType::F32, to);
  if (is_half(to)) return "to_" + value_type(to) + "(" + cast(x, from, DType::F32) + ")";
  if (to == DType::Bool) return x + " != 0";
  // Narrow integers wrap from a wider one, as on the CPU; the hardware's own conversion saturates.
  if (is_float(from) && to == DType::U8) return "u8(i64(" + x + "))";
  if (is_float(from) && (to == DType::I8 || to == DType::I16)) return value_type(to) + "(int(" + x + "))";
  return value_type(to) + "(" + x + ")";
}

std::string operation(ScalarOp op, DType t, const std::vector<std::string>& a, bool contract) {
  if (op == ScalarOp::where) return a[0] + " ? " + a[1] + " : " + a[2];
  if (op == ScalarOp::logical_not) return t == DType::Bool ? "!" + a[0] : a[0] + " == 0";
  // NVRTC contracts what is written with operators.
  if (is_float(t) && !contract && (op == ScalarOp::add || op == ScalarOp::sub))
    return call(std::string(t == DType::F32 ? "__f" : "__d") + (op == ScalarOp::add ? "add_rn" : "sub_rn"),
                a);
  const std::string between = infix(op, t);
  if (!between.empty()) return a[0] + between + a[1];
  return is_float(t) ? floating(op, t, a) : integral(op, t, a);
}

std::string combiner(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum: return "Sum";
    case ReduceOp::Prod: return "Prod";
    case ReduceOp::Max: return "Max";
    case ReduceOp::Min: return "Min";
    case ReduceOp::Any: return "Any";
    case ReduceOp::All: return "All";
    case ReduceOp::ArgMax: return "ArgMax";
    case ReduceOp::ArgMin: return "ArgMin";
    case ReduceOp::LogAddExp: return "LogAddExp";
  }
  return "";
}

std::string identity(ReduceOp op, DType t) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const int bits = dtype_bytes(t) * 8;
  const bool sign = is_signed_int(t);
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Any: return constant(t, 0, 0);
    case ReduceOp::Prod:
    case ReduceOp::All: return constant(t, 1, 1);
    case ReduceOp::Max:
    case ReduceOp::LogAddExp:
    case ReduceOp::ArgMax:
      return constant(t, -inf, sign ? std::numeric_limits<int64_t>::min() >> (64 - bits) : 0);
    default:
      if (t == DType::Bool) return "true";
      return constant(t, inf, sign ? std::numeric_limits<int64_t>::max() >> (64 - bits) : (1 << bits) - 1);
  }
}

}  // namespace bolt::codegen::cuda

// tests/codegen/math_test.cpp
// Every mathematical function within 2 ulp of the exact result: a sweep over all exponents and both signs,
// the range where each is interesting, and edge cases. float is compared with double, double with the 64-bit
// mantissa of long double.

#include <cfloat>
#include <limits>
#include <map>

#include "loops/kernel_ops.h"
#include "tests/codegen/run_kernel.h"

namespace bolt::codegen::cpu::testing {
namespace {

using Real = long double;
using loops::ScalarOp;

struct Function {
  ScalarOp op;
  Real (*exact)(Real);
  double low, high;                // the interesting range, swept densely
  double most = 2;                 // units in the last place, of a double
  Real (*beside)(Real) = nullptr;  // whose units count in double where the result is smaller
  bool in_float = false;           // so they do in float
};

Real sigmoid(Real x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
/// Beyond, the series, which long doubles see no end of.
Real erfcx(Real x) {
  if (x < 60) return std::exp(x * x) * std::erfc(x);
  const Real z = 1 / (2 * x * x);
  return 1 / (x * std::sqrt(Real(M_PIl))) * (1 - z * (1 - 3 * z * (1 - 5 * z * (1 - 7 * z * (1 - 9 * z)))));
}
Real erfinv(Real x) {
  const Real a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(Real(INFINITY), x) : Real(NAN);
  const Real w = std::log1p(-a * a), half = 2 / (M_PIl * 0.147L) + w / 2;
  Real y = std::sqrt(std::sqrt(half * half - w / 0.147L) - half);
  if (a < 1e-6L) y = a * std::sqrt(M_PIl) / 2;
  for (int i = 0; i < 6; ++i) {
    const Real rest = std::erfc(y), slope = 2 / std::sqrt(M_PIl) * std::exp(-y * y);
    y += a < 0.5L ? (a - std::erf(y)) / slope : std::log(rest / (1 - a)) * rest / slope;
  }
  return std::copysign(y, x);
}
Real ndtr(Real x) { return std::erfc(-x * std::sqrt(Real(0.5))) / 2; }
/// What is left far below counts as a part of a number from 0 to 1, as in all who multiply by it.
Real beside_ndtr(Real) { return 0.125L; }
/// Left of 1/2 a difference from the reflected number's, right of it something from 1 on.
Real beside_lgamma(Real x) { return std::fmax(Real(1), x < 0.5L ? std::fabs(std::lgamma(1 - x)) : 0); }
Real rsqrt(Real x) { return 1 / std::sqrt(x); }
Real reciprocal(Real x) { return 1 / x; }

const Function kFunctions[] = {
    {ScalarOp::exp, std::exp, -110, 95},
    {ScalarOp::exp2, std::exp2, -155, 130},
    {ScalarOp::expm1, std::expm1, -20, 90},
    {ScalarOp::log, std::log, 0, 4},
    {ScalarOp::log2, std::log2, 0, 4},
    {ScalarOp::log10, std::log10, 0, 4},
    {ScalarOp::log1p, std::log1p, -1, 3},
    {ScalarOp::sin, std::sin, -50, 50},
    {ScalarOp::cos, std::cos, -50, 50},
    {ScalarOp::tan, std::tan, -50, 50},
    {ScalarOp::asin, std::asin, -1, 1},
    {ScalarOp::acos, std::acos, -1, 1},
    {ScalarOp::atan, std::atan, -5, 5},
    {ScalarOp::sinh, std::sinh, -90, 90},
    {ScalarOp::cosh, std::cosh, -90, 90},
    {ScalarOp::tanh, std::tanh, -10, 10},
    {ScalarOp::asinh, std::asinh, -9, 9},
    {ScalarOp::acosh, std::acosh, 1, 9},
    {ScalarOp::atanh, std::atanh, -1, 1},
    {ScalarOp::erf, std::erf, -5, 5},
    {ScalarOp::erfc, std::erfc, -6, 11},
    {ScalarOp::sigmoid, sigmoid, -105, 20},
    {ScalarOp::rsqrt, rsqrt, 0, 10},
    {ScalarOp::reciprocal, reciprocal, -4, 4},
    {ScalarOp::sqrt, std::sqrt, 0, 10},
    {ScalarOp::erfcx, erfcx, -27, 60},
    {ScalarOp::erfinv, erfinv, -1, 1},
    {ScalarOp::lgamma, std::lgamma, -10, 40, 8, beside_lgamma},
    {ScalarOp::ndtr, ndtr, -15, 7, 2, beside_ndtr, true},
};

template <typename T>
using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

/// Distance in units of the exact result's last place (of the smallest denormal near zero).
template <typename T>
double ulps(T got, Real exact, Real beside = 0) {
  const T nearest = static_cast<T>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(nearest) || std::isinf(got)) {
    if (got == nearest) return 0;
    return std::fabs(exact) > static_cast<Real>(std::numeric_limits<T>::max()) * (1 - 4e-8L) &&
                   std::fabs(got) == std::numeric_limits<T>::max()
               ? 1
               : INFINITY;
  }
  if (nearest == 0 && got == 0) return std::signbit(got) == std::signbit(exact) ? 0 : INFINITY;
  const int exponent = exact == 0 ? -20000 : std::ilogb(exact);
  constexpr int digits = std::numeric_limits<T>::digits, lowest = std::numeric_limits<T>::min_exponent - 1;
  const Real unit =
      std::ldexp(Real(1), std::max(beside == 0 ? exponent : std::max(exponent, std::ilogb(beside)), lowest) -
                              digits + 1);
  return static_cast<double>(std::fabs(static_cast<Real>(got) - exact) / unit);
}

template <typename T>
std::vector<T> samples(const Function& f, size_t count) {
  std::vector<T> xs = {0, -T(0), 1, -1, T(0.5), T(-0.5), T(INFINITY), T(-INFINITY), T(NAN)};
  for (T x :
       {std::numeric_limits<T>::min(), std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::max()})
    xs.push_back(x), xs.push_back(-x);
  const Bits<T> step = static_cast<Bits<T>>(-1) / static_cast<Bits<T>>(count);
  for (size_t i = 0; i < count; ++i) {  // all bit patterns, evenly
    const Bits<T> bits = static_cast<Bits<T>>(i) * step;
    T x;
    std::memcpy(&x, &bits, sizeof x);
    xs.push_back(x);
  }
  for (size_t i = 0; i < count; ++i)
    xs.push_back(static_cast<T>(f.low + (f.high - f.low) * (static_cast<double>(i) + 0.37) /
                                            static_cast<double>(count)));
  return xs;
}

std::string unary_kernel(ScalarOp op, DType t) {
  const std::string type(dtype_name(t));
  return "kernel @f (in %b0: " + type + ", out %b1: " + type +
         ") space [s0 d0] syms [s0] {\n  %0 = load b0[d0]\n  %1 = " + std::string(loops::scalar_op_name(op)) +
         " %0\n  store b1[d0] = %1\n}\n";
}

template <typename T>
std::vector<T> apply(const loops::Kernel& kernel, const std::vector<T>& xs, const Target& target) {
  auto module = compile({kernel}, target);
  const CompiledKernel& k = module->kernels()[0];
  std::vector<T> ys(xs.size());
  const int64_t n = static_cast<int64_t>(xs.size());
  void* buffers[] = {const_cast<T*>(xs.data()), ys.data()};
  k.fn(buffers, &n, 0, evaluate(k.work, [&](const SymNode&) { return n; }));
  return ys;
}

template <typename T>
void sweep(const Function& f, DType t, size_t count) {
  for (const Target& target : targets()) {
    const loops::Kernel kernel = loops::parse_kernel(unary_kernel(f.op, t));
    if (!runs_here(target)) {
      look_at(assemble({kernel}, target), target);
      continue;
    }
    const std::vector<T> xs = samples<T>(f, target.isa == widest_here().isa ? count : count / 16);
    const std::vector<T> ys = apply<T>(kernel, xs, target);
    double worst = 0;
    size_t where = 0;
    for (size_t i = 0; i < xs.size(); ++i) {
      const Real exact =
          sizeof(T) == 4 ? static_cast<Real>(f.exact(static_cast<double>(xs[i]))) : f.exact(xs[i]);
      const double e =
          ulps<T>(ys[i], exact, f.beside && (f.in_float || sizeof(T) == 8) ? f.beside(xs[i]) : 0);
      if (e > worst) worst = e, where = i;
    }
    EXPECT_LE(worst, sizeof(T) == 8 ? f.most : 2.0)
        << loops::scalar_op_name(f.op) << "(" << xs[where] << ") = " << ys[where] << " on " << target.key();
    ::testing::Test::RecordProperty(std::string(dtype_name(t)) + "_" + target.key(), std::to_string(worst));
  }
}

class Maths : public ::testing::TestWithParam<Function> {};
TEST_P(Maths, Float) { sweep<float>(GetParam(), DType::F32, size_t{1} << 19); }
TEST_P(Maths, Double) { sweep<double>(GetParam(), DType::F64, size_t{1} << 17); }
INSTANTIATE_TEST_SUITE_P(All, Maths, ::testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(loops::scalar_op_name(info.param.op)); });

struct Binary {
  ScalarOp op;
  Real (*exact)(Real, Real);
  double low, high;
};
const Binary kBinary[] = {{ScalarOp::pow, std::pow, 0, 30}, {ScalarOp::atan2, std::atan2, -3, 3}};

template <typename T>
void sweep2(const Binary& f, DType t) {
  std::vector<T> edges = {0, -T(0), 1, -1, 2, -2, 3, -3, T(0.5), T(-0.5), T(INFINITY), T(-INFINITY), T(NAN)};
  std::vector<T> xs, ys;
  for (T x : edges)
    for (T y : edges) xs.push_back(x), ys.push_back(y);
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> first(f.low, f.high), second(-20, 20);
  for (int i = 0; i < 60000; ++i)
    xs.push_back(static_cast<T>(first(random))), ys.push_back(static_cast<T>(second(random)));
  const std::string type(dtype_name(t));
  const std::string text = "kernel @f (in %b0: " + type + ", in %b1: " + type + ", out %b2: " + type +
                           ") space [s0 d0] syms [s0] {\n  %0 = load b0[d0]\n  %1 = load b1[d0]\n  %2 = " +
                           std::string(loops::scalar_op_name(f.op)) + " %0, %1\n  store b2[d0] = %2\n}\n";
  const loops::Kernel kernel = loops::parse_kernel(text);
  for (const Target& target : targets()) {
    if (!runs_here(target)) {
      look_at(assemble({kernel}, target), target);
      continue;
    }
    auto module = compile({kernel}, target);
    const CompiledKernel& k = module->kernels()[0];
    std::vector<T> zs(xs.size());
    const int64_t n = static_cast<int64_t>(xs.size());
    void* buffers[] = {xs.data(), ys.data(), zs.data()};
    k.fn(buffers, &n, 0, evaluate(k.work, [&](const SymNode&) { return n; }));
    for (size_t i = 0; i < xs.size(); ++i)
      ASSERT_LE(ulps<T>(zs[i], f.exact(xs[i], ys[i])), 2.0)
          << loops::scalar_op_name(f.op) << "(" << xs[i] << ", " << ys[i] << ") = " << zs[i] << " on "
          << target.key();
  }
}

class Maths2 : public ::testing::TestWithParam<Binary> {};
TEST_P(Maths2, Float) { sweep2<float>(GetParam(), DType::F32); }
TEST_P(Maths2, Double) { sweep2<double>(GetParam(), DType::F64); }
INSTANTIATE_TEST_SUITE_P(All, Maths2, ::testing::ValuesIn(kBinary),
                         [](const auto& info) { return std::string(loops::scalar_op_name(info.param.op)); });

}  // namespace
}  // namespace bolt::codegen::cpu::testing

// tests/gemm/harness.h
// contraction description -> compiled kernel with a small epilogue, and the same epilogue in float64
//
// For an instruction set that does not run here the code is looked at instead, and there is nothing to run.
// Shared by the tests and the micro benchmark. Buffers are 0: A / input, 1: B / weights, 2: result, 3: bias
// (one per column), 4: residual (same shape as the result).
#pragma once

#include <chrono>
#include <concepts>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cpu/gemm/contraction.h"
#include "tests/codegen/targets.h"

namespace bolt::codegen::cpu::gemm::test {

using testing::Isa;
using testing::kIsas;
using testing::target_of;
constexpr float kUntouched = -12345.5f;  ///< what results and their guard zone hold before
constexpr size_t kGuard = 64;

inline std::vector<float> random_floats(std::integral auto count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> numbers(-1, 1);
  std::vector<float> result(static_cast<size_t>(count));
  for (float& number : result) number = numbers(generator);
  return result;
}

inline int lanes_of(Isa isa) { return machine_facts(target_of(isa)).lanes; }

/// result = activation(sum + bias + residual)
struct SimpleEpilogue {
  bool bias = false;
  bool residual = false;
  bool relu = false;
  bool polynomial = false;  ///< a long activation, so that the looped form is taken
};

constexpr int kPolynomialTerms = 24;

inline double apply(const SimpleEpilogue& e, double sum, double bias, double residual) {
  if (e.bias) sum += bias;
  if (e.residual) sum += residual;
  if (e.polynomial) {
    const double x = sum;
    sum = 1;
    for (int i = 0; i < kPolynomialTerms; ++i) sum = sum * (x / 64) + 0.5;
  }
  return e.relu && sum < 0 ? 0 : sum;
}

/// Builds the epilogue's expressions one by one.
class EpilogueBuilder {
 public:
  EpilogueBuilder(Sym rows, int64_t columns)
      : index_(loops::Kernel::dim(0) * Sym(columns) + loops::Kernel::dim(1)) {
    kernel_.name = "epilogue";
    kernel_.dims = {{rows, false}, {columns, false}};
    kernel_.buffers = {{DType::F32, loops::BufferRole::Out, "result"},
                       {DType::F32, loops::BufferRole::In, "bias"},
                       {DType::F32, loops::BufferRole::In, "residual"}};
    if (!rows.is_const()) collect_symbols(rows, &kernel_.symbols);
  }

  loops::Kernel build(const SimpleEpilogue& e) {
    loops::ExprId value = add(expr(loops::ExprKind::Acc));
    if (e.bias) value = op(loops::ScalarOp::add, {value, load(1, loops::Kernel::dim(1))});
    if (e.residual) value = op(loops::ScalarOp::add, {value, load(2, index_)});
    if (e.polynomial) value = polynomial(value);
    if (e.relu) value = op(loops::ScalarOp::maximum, {value, constant(0)});
    kernel_.stores.push_back({0, index_, value, {}, loops::kNone});
    return kernel_;
  }

 private:
  static loops::Expr expr(loops::ExprKind kind) {
    loops::Expr e{};
    e.kind = kind;
    e.dtype = DType::F32;
    return e;
  }
  loops::ExprId add(loops::Expr e) { return kernel_.add(std::move(e)); }
  loops::ExprId op(loops::ScalarOp scalar, std::vector<loops::ExprId> args) {
    loops::Expr e = expr(loops::ExprKind::Op);
    e.op = scalar;
    e.args = std::move(args);
    return add(std::move(e));
  }
  loops::ExprId constant(double value) {
    loops::Expr e = expr(loops::ExprKind::Const);
    e.value = value;
    return add(std::move(e));
  }
  loops::ExprId load(int buffer, Sym index) {
    loops::Expr e = expr(loops::ExprKind::Load);
    e.buffer = buffer;
    e.index = index;
    return add(std::move(e));
  }
  loops::ExprId polynomial(loops::ExprId x) {
    const loops::ExprId scaled = op(loops::ScalarOp::mul, {x, constant(1.0 / 64)});
    loops::ExprId sum = constant(1);
    for (int i = 0; i < kPolynomialTerms; ++i) {
      sum = op(loops::ScalarOp::add, {op(loops::ScalarOp::mul, {sum, scaled}), constant(0.5)});
    }
    return sum;
  }

  loops::Kernel kernel_;
  Sym index_;
};

struct Compiled {
  std::unique_ptr<Module> module;  ///< null when the target does not run here
  ScheduledContraction item;
  double milliseconds = 0;

  const TileSchedule& schedule() const { return item.schedule; }
  void run(void* const* buffers, const int64_t* syms, int64_t begin, int64_t end) const {
    module->kernels().front().fn(buffers, syms, begin, end);
  }
  int64_t tasks(int64_t m = 0) const {
    return evaluate(module->kernels().front().work, [&](const SymNode&) { return m; });
  }
};

inline Compiled compile_one(Contraction contraction, Isa isa, const TileSchedule* schedule,
                            int64_t m_hint = 128) {
  const auto start = std::chrono::steady_clock::now();
  const Target target = target_of(isa);
  Compiled compiled;
  const TileSchedule chosen = schedule ? *schedule : choose_schedule(contraction, target, m_hint);
  compiled.item = {std::move(contraction), chosen};
  if (testing::runs_here(target))
    compiled.module = compile({compiled.item}, target);
  else
    testing::look_at(assemble({compiled.item}, target), target);
  compiled.milliseconds =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

inline int64_t items_of(const GemmKernel& kernel) {
  int64_t items = 1;
  for (const BatchDim& dim : kernel.batch) items *= dim.size;
  return items;
}

inline Compiled compile_gemm(const GemmKernel& kernel, const SimpleEpilogue& e, Isa isa,
                             const TileSchedule* schedule = nullptr) {
  return compile_one({kernel, EpilogueBuilder(Sym(items_of(kernel)) * kernel.m, kernel.n).build(e)}, isa,
                     schedule);
}

inline Compiled compile_conv(const ConvKernel& kernel, const SimpleEpilogue& e, Isa isa,
                             const TileSchedule* schedule = nullptr) {
  const Sym rows = kernel.images * Sym(kernel.out_height() * kernel.out_width());
  return compile_one({kernel, EpilogueBuilder(rows, kernel.out_channels).build(e)}, isa, schedule);
}

/// Weights as a layer holds them, contiguous: [n, k] of a linear layer or [out, in / groups, kh, kw] of a
/// convolution.
inline std::vector<float> pack(const Compiled& compiled, const float* weights, std::vector<int64_t> strides) {
  const Contraction& c = compiled.item.contraction;
  std::vector<float> packed(static_cast<size_t>(packed_floats(c, compiled.schedule())));
  pack_weights(c, compiled.schedule(), weights, strides, packed.data());
  return packed;
}

inline std::vector<int64_t> weight_strides(const ConvKernel& c) {
  const int64_t area = c.kernel_h * c.kernel_w;
  return {c.in_channels / c.groups * area, area, c.kernel_w, 1};
}

}  // namespace bolt::codegen::cpu::gemm::test

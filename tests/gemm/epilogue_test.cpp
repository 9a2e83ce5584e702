// tests/gemm/epilogue_test.cpp
// Epilogues in the Loops text form on a small product: the emitted code against the kernel's reference
// execution with the sums stored. Buffers: A, packed B, then the epilogue's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "codegen/cpu/gemm/contraction.h"
#include "tests/gemm/harness.h"
#include "tests/reference/kernel.h"

namespace bolt::codegen::cpu::gemm::test {
namespace {

constexpr int64_t kRows = 21, kDepth = 37, kColumns = 50;

std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kDepth; ++k) sum += double{a[i * kDepth + k]} * b[k * kColumns + j];
      out.push_back(static_cast<float>(sum));
    }
  return out;
}

/// The epilogue as a kernel of its own that reads the sums from one more buffer.
loops::Kernel on_stored_sums(loops::Kernel k) {
  Sym at = 0, stride = 1;
  for (size_t d = k.dims.size(); d-- > 0;) {
    at += loops::Kernel::dim(static_cast<int>(d)) * stride;
    stride *= k.dims[d].size;
  }
  for (loops::Expr& e : k.exprs) {
    if (e.kind != loops::ExprKind::Acc) continue;
    e.kind = loops::ExprKind::Load;
    e.buffer = static_cast<int>(k.buffers.size());
    e.index = at;
  }
  k.buffers.push_back({DType::F32, loops::BufferRole::In, "sums"});
  return k;
}

/// Memory of a buffer: floats in [-1, 1], which are also fine as any other type's bytes when masked to b8.
std::vector<char> memory_of(DType type, size_t count, unsigned seed) {
  std::vector<float> numbers = random_floats(count, seed);
  std::vector<char> bytes(count * static_cast<size_t>(dtype_bytes(type)));
  for (size_t i = 0; i < count; ++i) {
    if (type == DType::F32) std::memcpy(&bytes[4 * i], &numbers[i], 4);
    if (type == DType::Bool) bytes[i] = numbers[i] > 0;
    if (type == DType::I64) bytes[8 * i] = static_cast<char>(seed % 7);
    if (type == DType::BF16) std::memcpy(&bytes[2 * i], reinterpret_cast<char*>(&numbers[i]) + 2, 2);
  }
  return bytes;
}

double as_number(DType type, const char* at) {
  float f = 0;
  if (type == DType::F32) std::memcpy(&f, at, 4);
  if (type == DType::BF16) std::memcpy(reinterpret_cast<char*>(&f) + 2, at, 2);
  if (type == DType::Bool) f = *at != 0;
  return f;
}

void check(const std::string& text, double tolerance = 2e-6, int threads = 1) {
  SCOPED_TRACE(text);
  const loops::Kernel epilogue = loops::parse_kernel(text);
  loops::verify(epilogue);
  const auto a = random_floats(kRows * kDepth, 1), b = random_floats(kDepth * kColumns, 2);
  std::vector<float> sums = product(a, b);
  std::vector<std::vector<char>> got, expected;
  for (size_t i = 0; i < epilogue.buffers.size(); ++i) {
    got.push_back(memory_of(epilogue.buffers[i].dtype, kRows * kColumns, static_cast<unsigned>(10 + i)));
    expected.push_back(got.back());
  }
  std::vector<void*> pointers;
  for (auto& buffer : expected) pointers.push_back(buffer.data());
  pointers.push_back(sums.data());
  loops::run_reference(on_stored_sums(epilogue), pointers.data(), nullptr);

  for (Isa isa : kIsas) {
    GemmKernel gemm;
    gemm.name = "product";
    gemm.m = kRows, gemm.n = kColumns, gemm.k = kDepth;
    gemm.a = {0, kDepth, 1, false};
    gemm.b = {1, 0, 0, true};
    const Compiled compiled = compile_one({gemm, epilogue, 2}, isa, nullptr);
    if (!compiled.module) continue;
    std::vector<float> packed = pack(compiled, b.data(), {1, kColumns});
    auto mine = got;
    std::vector<void*> buffers = {const_cast<float*>(a.data()), packed.data()};
    for (auto& buffer : mine) buffers.push_back(buffer.data());
    const int64_t tasks = compiled.tasks();
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back(
          [&, t] { compiled.run(buffers.data(), nullptr, tasks * t / threads, tasks * (t + 1) / threads); });
    for (std::thread& t : pool) t.join();
    for (size_t i = 0; i < mine.size(); ++i) {
      const DType type = epilogue.buffers[i].dtype;
      if (type == DType::I64) continue;
      const size_t size = static_cast<size_t>(dtype_bytes(type));
      double worst = 0;
      for (size_t at = 0; at < mine[i].size(); at += size)
        worst = std::max(worst, std::abs(as_number(type, &mine[i][at]) - as_number(type, &expected[i][at])));
      EXPECT_LE(worst, tolerance) << "buffer " << i << " isa " << static_cast<int>(isa);
    }
  }
}

TEST(Epilogue, GeluWithBias) {
  const std::string text = R"(kernel @gelu (in %b0: f32, out %b1: f32) space [21 d0, 50 d1] {
  %0 = acc f32
  %1 = load b0[d1]
  %2 = add %0, %1
  %3 = const f32 0.70710678
  %4 = mul %2, %3
  %5 = erf %4
  %6 = const f32 1
  %7 = add %5, %6
  %8 = const f32 0.5
  %9 = mul %2, %8
  %10 = mul %9, %7
  store b1[50*d0 + d1] = %10
})";
  check(text);
  check(text, 2e-6, 2);
}

TEST(Epilogue, SiluTimesResidual) {
  check(R"(kernel @silu (in %b0: f32, out %b1: f32) space [21 d0, 50 d1] {
  %0 = acc f32
  %1 = sigmoid %0
  %2 = mul %0, %1
  %3 = load b0[50*d0 + d1]
  %4 = mul %2, %3
  store b1[50*d0 + d1] = %4
})");
}

TEST(Epilogue, RowsInTwoDimensionsAndAPositionsBias) {
  check(R"(kernel @position (in %b0: f32, out %b1: f32) space [3 d0, 7 d1, 50 d2] {
  %0 = acc f32
  %1 = load b0[50*d1 + d2]
  %2 = add %0, %1
  %3 = load b0[d0]
  %4 = mul %2, %3
  store b1[350*d0 + 50*d1 + d2] = %4
})");
}

TEST(Epilogue, PositionsChangePlacesOnTheWayOut) {
  check(R"(kernel @places (out %b0: f32) space [3 d0, 7 d1, 50 d2] {
  %0 = acc f32
  store b0[50*d0 + 150*d1 + d2] = %0
})");
}

TEST(Epilogue, TransposedResultAndASecondOne) {
  check(R"(kernel @both (out %b0: f32, out %b1: bf16) space [21 d0, 50 d1] {
  %0 = acc f32
  %1 = cast bf16 %0
  store b0[d0 + 21*d1] = %0
  store b1[50*d0 + d1] = %1
})",
        5e-2);
}

TEST(Epilogue, ChoiceByAMaskAndNumbersOfTheIndex) {
  check(R"(kernel @choice (in %b0: b8, out %b1: f32, out %b2: b8) space [21 d0, 50 d1] {
  %0 = acc f32
  %1 = load b0[50*d0 + d1]
  %2 = const f32 -2
  %3 = where %1, %0, %2
  %4 = index d0 + 2*d1
  %5 = cast f32 %4
  %6 = const f32 0.125
  %7 = mul %5, %6
  %8 = add %3, %7
  store b1[50*d0 + d1] = %8
  store b2[50*d0 + d1] = %1
})",
        4e-6);
}

TEST(Epilogue, ReductionsAreRefused) {
  EXPECT_ANY_THROW(check(R"(kernel @sum (out %b0: f32) space [21 d0, 50 d1 reduce] {
  %0 = acc f32
  %1 = reduce sum %0 over d1
  store b0[d0] = %1
})"));
}

TEST(Epilogue, ColumnsInTwoDimensionsAreRefused) {
  EXPECT_ANY_THROW(check(R"(kernel @heads (out %b0: f32) space [3 d0, 7 d1, 5 d2, 10 d3] {
  %0 = acc f32
  store b0[350*d0 + 10*d1 + 70*d2 + d3] = %0
})"));
}

}  // namespace
}  // namespace bolt::codegen::cpu::gemm::test

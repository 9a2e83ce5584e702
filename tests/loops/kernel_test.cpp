// tests/loops/kernel_test.cpp
// Text form, verifier and reference execution of kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "loops/kernel.h"
#include "loops/kernel_ops.h"
#include "loops/normalise.h"
#include "support/error.h"
#include "tests/reference/kernel.h"

namespace bolt::loops {
namespace {

constexpr const char* kSoftmax =
    R"(kernel @softmax_0 (in %b0: f32 "scores", out %b1: f32) space [2 d0, 4 d1 reduce] {
  source "model.py:12"
  %0 = load b0[4*d0 + d1]
  %1 = reduce max %0 over d1
  %2 = sub %0, %1
  %3 = exp %2
  %4 = reduce sum %3 over d1
  %5 = div %3, %4
  store b1[4*d0 + d1] = %5
}
)";

void expect_error(const char* text, const char* part) {
  try {
    verify(parse_kernel(text));
    FAIL() << "accepted: " << text;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Kernel, TextRoundTrip) {
  Kernel k = parse_kernel(kSoftmax);
  verify(k);
  std::string text = print(k);
  EXPECT_EQ(print(parse_kernel(text)), text);
  EXPECT_EQ(k.exprs[0].dims, 3u);
  EXPECT_EQ(k.exprs[1].dims, 1u);
  EXPECT_EQ(k.sources, std::vector<std::string>{"model.py:12"});
}

TEST(Kernel, TextOfEveryForm) {
  const char* text = R"(kernel @all (in %b0: f32, in %b1: i64, inout %b2: f32) space [s0 d0, 8 d1] syms [s0] {
  %0 = const f32 -inf
  %1 = const b8 true
  %2 = load b1[d0]
  %3 = load b0[d1; %2 * 8] if %1 else 0.5
  %4 = index d1
  %5 = const i64 3
  %6 = lt %4, %5
  %7 = where %6, %3, %0
  %8 = cast f64 %7
  %9 = cast f32 %8
  store b2[d1; %2 * 8] = %9 if %6
}
)";
  Kernel k = parse_kernel(text);
  verify(k);
  std::string printed = print(k);
  EXPECT_EQ(print(parse_kernel(printed)), printed);
  EXPECT_NE(printed.find("if %1 else 0.5"), std::string::npos);
  EXPECT_NE(printed.find("const f32 -inf"), std::string::npos);
}

TEST(Kernel, ReferenceSoftmax) {
  Kernel k = parse_kernel(kSoftmax);
  std::vector<float> x = {1, 2, 3, 4, 0, 0, 0, 100}, y(8);
  void* buffers[] = {x.data(), y.data()};
  run_reference(k, buffers, nullptr);
  double total = std::exp(-3.0) + std::exp(-2.0) + std::exp(-1.0) + 1;
  EXPECT_NEAR(y[0], std::exp(-3.0) / total, 1e-7);
  EXPECT_NEAR(y[3], 1 / total, 1e-7);
  EXPECT_NEAR(y[7], 1, 1e-7);
}

TEST(Kernel, ReferenceSymbolicGatherAndMask) {
  Kernel k = parse_kernel(R"(
    kernel @embed (in %b0: f32, in %b1: i64, out %b2: f32) space [s0 d0, 2 d1] syms [s0] {
      %0 = load b1[d0]
      %1 = const i64 0
      %2 = ge %0, %1
      %3 = load b0[d1; %0 * 2] if %2 else -1
      store b2[2*d0 + d1] = %3
    })");
  verify(k);
  std::vector<float> table = {1, 2, 3, 4, 5, 6}, y(6);
  std::vector<int64_t> ids = {2, -7, 0};
  void* buffers[] = {table.data(), ids.data(), y.data()};
  int64_t syms[] = {3};
  run_reference(k, buffers, syms);
  EXPECT_EQ(y, (std::vector<float>{5, 6, -1, -1, 1, 2}));
}

TEST(Kernel, ReferenceStorageTypes) {
  Kernel k = parse_kernel(R"(
    kernel @half (in %b0: bf16, in %b1: f16, out %b2: bf16, out %b3: f16) space [4 d0] {
      %0 = load b0[d0]
      %1 = cast f32 %0
      %2 = load b1[d0]
      %3 = cast f32 %2
      %4 = add %1, %3
      %5 = cast bf16 %4
      %6 = cast f16 %4
      store b2[d0] = %5
      store b3[d0] = %6
    })");
  verify(k);
  std::vector<uint16_t> a = {0x3f80, 0x4000, 0xff80, 0x0000};  // 1, 2, -inf, 0
  std::vector<uint16_t> b = {0x3c00, 0x0001, 0x3c00, 0x7bff};  // 1, 2^-24, 1, 65504
  std::vector<uint16_t> y(4), z(4);
  void* buffers[] = {a.data(), b.data(), y.data(), z.data()};
  run_reference(k, buffers, nullptr);
  EXPECT_EQ(y, (std::vector<uint16_t>{0x4000, 0x4000, 0xff80, 0x4780}));  // 65504 rounds to 65536
  EXPECT_EQ(z, (std::vector<uint16_t>{0x4000, 0x4000, 0xfc00, 0x7bff}));
}

TEST(Kernel, ReferenceArgmaxTakesFirstAndNaN) {
  Kernel k = parse_kernel(R"(
    kernel @arg (in %b0: f32, out %b1: i64) space [2 d0, 3 d1 reduce] {
      %0 = load b0[3*d0 + d1]
      %1 = reduce argmax %0 over d1
      store b1[d0] = %1
    })");
  verify(k);
  std::vector<float> x = {5, 7, 7, 9, NAN, NAN};
  std::vector<int64_t> y(2);
  void* buffers[] = {x.data(), y.data()};
  run_reference(k, buffers, nullptr);
  EXPECT_EQ(y, (std::vector<int64_t>{1, 1}));
}

TEST(Kernel, ReferenceReadsInOutBeforeWriting) {
  Kernel k = parse_kernel(R"(
    kernel @flip (inout %b0: i64) space [4 d0] {
      %0 = load b0[3 + d0 * -1]
      store b0[d0] = %0
    })");
  verify(k);
  std::vector<int64_t> x = {1, 2, 3, 4};
  void* buffers[] = {x.data()};
  run_reference(k, buffers, nullptr);
  EXPECT_EQ(x, (std::vector<int64_t>{4, 3, 2, 1}));
}

TEST(Kernel, AddSharesEqualExpressions) {
  Kernel k = parse_kernel(kSoftmax);
  Expr again = k.exprs[2];
  EXPECT_EQ(k.add(again), 2);
  again.op = ScalarOp::add;
  EXPECT_EQ(k.add(again), 6);
}

TEST(Kernel, Traffic) {
  Traffic t = traffic(parse_kernel(kSoftmax));
  EXPECT_EQ(t.bytes, Sym(64));
  EXPECT_EQ(t.flops, Sym(5 * 8));
}

TEST(Kernel, NoSumOfTwoProductsIsContracted) {
  const Kernel k =
      parse_kernel(R"(kernel @k (in %b0: f32, in %b1: i64, out %b2: f32, out %b3: i64) space [8 d0] {
  %0 = load b0[d0]
  %1 = mul %0, %0
  %2 = mul %1, %0
  %3 = sub %1, %2
  %4 = add %3, %1
  %5 = exp %4
  %6 = load b1[d0]
  %7 = mul %6, %6
  store b2[d0] = %5
  store b3[d0] = %7
}
)");
  std::vector<int> contracted;
  for (size_t i = 0; i < k.exprs.size(); ++i)
    if (may_contract(k, k.exprs[i])) contracted.push_back(static_cast<int>(i));
  EXPECT_EQ(contracted, (std::vector<int>{1, 2, 4}));
}

TEST(Kernel, VerifierNamesTheFault) {
  expect_error(
      "kernel @a (in %b0: f32, out %b1: f32) space [4 d0, 4 d1] { %0 = load b0[4*d0 + d1]\n"
      "store b1[d0] = %0 }",
      "more dimensions than the index");
  expect_error(
      "kernel @a (in %b0: bf16, out %b1: bf16) space [4 d0] { %0 = load b0[d0]\n"
      "%1 = neg %0\n store b1[d0] = %1 }",
      "storage dtype");
  expect_error(
      "kernel @a (in %b0: f32, out %b1: f32) space [4 d0] { %0 = load b0[q + d0]\n"
      "store b1[d0] = %0 }",
      "unknown symbol q");
  expect_error(
      "kernel @a (in %b0: f32, out %b1: f32) space [4 d0] { %0 = load b0[0]\n"
      "%1 = reduce sum %0 over d0\n store b1[0] = %1 }",
      "does not vary over");
  expect_error("kernel @a (in %b0: f32, out %b1: f64) space [4 d0] { %0 = load b0[d0]\n store b1[d0] = %0 }",
               "buffer's dtype");
  expect_error("kernel @a (in %b0: f32, out %b1: f32) space [4 d0] { %0 = load b0[d0] }", "never stored");
  expect_error(
      "kernel @a (in %b0: f32, out %b1: f32) space [4 d0 reduce] { %0 = load b0[d0]\n store b1[d0] = %0 }",
      "never reduced");
}

TEST(Kernel, ParserNamesLineAndText) {
  expect_error("kernel @a (in %b0: f32) space [4 d0] {\n %0 = frob b0[d0] }", "line 2");
  expect_error("kernel @a (in %b0: f32) space [4 d0] {\n %1 = const f32 1 }", "numbered in order");
  expect_error("kernel @a (in %b0: f32) space [4 d0] {\n %0 = neg %0 }", "before it is defined");
}

// How long a chunk is rests on its number. What stands for that when dimensions go or merge stands for it
// there.
TEST(Kernel, SizesFollowTheDimensionsTheyRestOn) {
  const Kernel sums = parse_kernel(
      "kernel @sums (in %b0: f32, out %b1: f32) space [1 d0, 3 d1, 4 d2 reduce, 8 d3] {\n"
      "%0 = load b0[96*d0 + 32*d1 + 8*d2 + d3]\n%1 = reduce sum %0 over d2\nstore b1[8*d1 + d3] = %1 }");
  Kernel by_the_second = sums;
  by_the_second.dims[2].size = Sym(4) - Kernel::dim(1);
  const Kernel kept = normalise(by_the_second);
  ASSERT_EQ(kept.dims.size(), 3u);
  EXPECT_EQ(kept.dims[1].size, Sym(4) - Kernel::dim(0));
  Kernel by_the_first = sums;
  by_the_first.dims[2].size = min(Sym(16), Sym(4) - Kernel::dim(0));
  EXPECT_EQ(normalise(by_the_first).dims[1].size, Sym(4));
  Kernel merged = parse_kernel(
      "kernel @merged (in %b0: f32, out %b1: f32) space [3 d0, 4 d1, 8 d2 reduce] {\n"
      "%0 = load b0[32*d0 + 8*d1 + d2]\n%1 = reduce sum %0 over d2\nstore b1[4*d0 + d1] = %1 }");
  merged.dims[2].size = Sym(8) - Kernel::dim(0);
  EXPECT_EQ(normalise(merged).dims.size(), 3u);
}

}  // namespace
}  // namespace bolt::loops

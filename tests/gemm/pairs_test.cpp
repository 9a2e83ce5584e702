// tests/gemm/pairs_test.cpp
// bfloat16 products and convolutions, computed in pairs: plans, instructions, and results where the machine
// can
#include <gtest/gtest.h>

#include "support/error.h"
#include "tests/gemm/run_graph.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using cpu::test::Ran;
using cpu::test::Sizes;

constexpr double kRounding = 1.0 / 256;  // of a result to bfloat16

Target target_with_pairs() {
  Target target = testing::target_of(testing::Isa::Avx512);
  target.avx512_bf16 = true;
  return target;
}

/// Is all of it ours, and right?
void expect_ours(const std::string& text, const std::vector<Sizes>& sizes) {
  const Ran ran = cpu::test::run_graph(text, sizes, target_with_pairs());
  EXPECT_EQ(ran.contractions, 1) << ran.plan;
  EXPECT_LE(ran.difference, kRounding) << ran.plan;
}

std::string linear(const std::string& x, const std::string& w, const std::string& bias) {
  return "graph @f(%x: " + x + ", %w: " + w + " param, %b: " + bias +
         " param) {\n  %y = linear(%x, %w, %b)\n  %z = relu(%y)\n  return %z\n}";
}

TEST(Pairs, LinearOfAllTails) {
  for (int64_t m : {1, 5, 37})
    for (int64_t n : {2, 31, 70})
      for (int64_t k : {2, 24, 770})
        expect_ours(linear("bf16[" + std::to_string(m) + ", " + std::to_string(k) + "]",
                           "bf16[" + std::to_string(n) + ", " + std::to_string(k) + "]",
                           "bf16[" + std::to_string(n) + "]"),
                    {{m, k}, {n, k}, {n}});
}

TEST(Pairs, RowsThatDoNotJoin) {
  expect_ours(linear("bf16[2, 5, 24]{400, 48, 1}", "bf16[40, 24]", "bf16[40]"), {{2, 5, 24}, {40, 24}, {40}});
}

TEST(Pairs, TransposedWeights) {
  expect_ours(R"(graph @f(%x: bf16[10, 24], %w: bf16[24, 40] param) {
  %t = permute(%w) {dims=[1, 0]}
  %y = linear(%x, %t)
  return %y
})",
              {{10, 24}, {24, 40}});
}

TEST(Pairs, Convolutions) {
  struct Case {
    int64_t in, out, kernel, groups;
    const char* attributes;
  };
  for (const Case& c : std::vector<Case>{
           {16, 24, 1, 1, "stride=[1, 1], padding=[0, 0], dilation=[1, 1], output_padding=[0, 0], groups=1"},
           {16, 40, 3, 1, "stride=[1, 1], padding=[1, 1], dilation=[1, 1], output_padding=[0, 0], groups=1"},
           {6, 33, 3, 1, "stride=[2, 2], padding=[1, 1], dilation=[1, 1], output_padding=[0, 0], groups=1"},
           {8, 64, 3, 2,
            "stride=[1, 1], padding=[2, 2], dilation=[2, 2], output_padding=[0, 0], groups=2"}}) {
    const Sizes w{c.out, c.in / c.groups, c.kernel, c.kernel};
    // Channels last, as layouts make it of what lies between.
    const int64_t side = 9;
    expect_ours("graph @f(%x: bf16[2, " + std::to_string(c.in) + ", 9, 9]{" +
                    std::to_string(side * side * c.in) + ", 1, " + std::to_string(side * c.in) + ", " +
                    std::to_string(c.in) + "}, %w: bf16[" + std::to_string(w[0]) + ", " +
                    std::to_string(w[1]) + ", " + std::to_string(w[2]) + ", " + std::to_string(w[3]) +
                    "] param, %b: bf16[" + std::to_string(c.out) + "] param) {\n  %y = conv(%x, %w, %b) {" +
                    c.attributes + "}\n  return %y\n}",
                {{2, c.in, side, side}, w, {c.out}});
  }
}

TEST(Pairs, WhatTheLibraryKeeps) {
  auto ours = [](const std::string& text, const Target& target) {
    return loops::plan(graph::parse(text), options_that_generate(target)).steps.at(0).kind ==
           loops::StepKind::Contraction;
  };
  const std::string even = linear("bf16[10, 24]", "bf16[40, 24]", "bf16[40]");
  EXPECT_TRUE(ours(even, target_with_pairs()));
  Target plain = target_with_pairs();
  plain.avx512_bf16 = false;
  EXPECT_FALSE(ours(even, plain));
  EXPECT_FALSE(ours(linear("bf16[10, 23]", "bf16[40, 23]", "bf16[40]"), target_with_pairs()));
  EXPECT_FALSE(ours(linear("bf16[10, 24]{25, 1}", "bf16[40, 24]", "bf16[40]"), target_with_pairs()));
}

TEST(Pairs, WhatIsComputedInFloat32) {
  auto is_wider = [](const std::string& dtype, const Target& target) {
    const auto g = graph::parse("graph @f(%x: " + dtype + "[8, 24], %w: " + dtype +
                                "[40, 24]) {\n  %y = linear(%x, %w)\n  return %y\n}");
    return options_that_generate(target).widens(*g->nodes.front());
  };
  Target plain = target_with_pairs(), half = plain;
  plain.avx512_bf16 = false;
  half.avx512_fp16 = true;
  EXPECT_FALSE(is_wider("bf16", target_with_pairs()));
  EXPECT_TRUE(is_wider("bf16", plain));
  EXPECT_TRUE(is_wider("f16", target_with_pairs()));
  EXPECT_FALSE(is_wider("f16", half));
}

// LLVM calls its handler of fatal errors over an instruction that the target does not have.
TEST(Pairs, WhatLlvmCannotEmitIsAnErrorOfOurs) {
  const std::string text = linear("bf16[10, 24]", "bf16[40, 24]", "bf16[40]");
  const loops::Plan plan = loops::plan(graph::parse(text), options_that_generate(target_with_pairs()));
  Target plain = target_with_pairs();
  plain.avx512_bf16 = false;
  EXPECT_THROW(assemble(plan, plain), Error);
}

}  // namespace
}  // namespace bolt::codegen::cpu::gemm

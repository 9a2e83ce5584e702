// tests/gemm/pairs_test.cpp
// bfloat16 products and convolutions, computed in pairs by vectors and by matrix registers: plans,
// instructions, and results where the machine can
#include <gtest/gtest.h>

#include "codegen/cpu/gemm/from_plan.h"
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

Target target_with_matrices() {
  Target target = target_with_pairs();
  target.isa = testing::Isa::Amx;
  return target;
}

/// Is all of it ours, and right?
void expect_ours(const std::string& text, const std::vector<Sizes>& sizes) {
  for (const Target& target : {target_with_pairs(), target_with_matrices()}) {
    const Ran ran = cpu::test::run_graph(text, sizes, target);
    EXPECT_EQ(ran.contractions, 1) << ran.plan;
    EXPECT_LE(ran.difference, kRounding) << target.key() << "\n" << ran.plan;
  }
}

/// Does a machine with matrix registers take them for this one?
bool takes_matrix_registers(const std::string& text) {
  const Target target = target_with_matrices();
  const loops::Plan plan = loops::plan(graph::parse(text), options_that_generate(target));
  return contraction_of(plan, plan.steps.at(0), target).schedule.matrix_step > 0;
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

// Rests of rows and columns that fill one register of two, none, or a part; K in steps of 16, 11 and 5 words.
TEST(Pairs, LinearOfAllMatrixTails) {
  for (int64_t m : {7, 16, 17, 31, 33, 48, 50, 64})
    for (int64_t n : {16, 40, 64})
      for (int64_t k : {64, 110, 1090}) {
        const std::string text = linear("bf16[" + std::to_string(m) + ", " + std::to_string(k) + "]",
                                        "bf16[" + std::to_string(n) + ", " + std::to_string(k) + "]",
                                        "bf16[" + std::to_string(n) + "]");
        EXPECT_TRUE(takes_matrix_registers(text)) << text;
        expect_ours(text, {{m, k}, {n, k}, {n}});
      }
}

// A long K is multiplied in blocks, each with all rows of a task.
TEST(Pairs, LongRowsInBlocks) {
  for (int64_t m : {43, 60, 75}) {
    const std::string text = linear("bf16[" + std::to_string(m) + ", 4096]", "bf16[96, 4096]", "bf16[96]");
    const Target target = target_with_matrices();
    const loops::Plan plan = loops::plan(graph::parse(text), options_that_generate(target));
    EXPECT_EQ(contraction_of(plan, plan.steps.at(0), target).schedule.k_block, 256);
    expect_ours(text, {{m, 4096}, {96, 4096}, {96}});
  }
}

TEST(Pairs, AnyNumberOfRows) {
  const std::string text = linear("bf16[s, 96]", "bf16[72, 96]", "bf16[72]");
  EXPECT_TRUE(takes_matrix_registers(text));
  for (int64_t m : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 64, 90, 700})
    expect_ours(text, {{m, 96}, {72, 96}, {72}});
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
           {8, 64, 3, 2, "stride=[1, 1], padding=[2, 2], dilation=[2, 2], output_padding=[0, 0], groups=2"},
           {96, 48, 3, 2, "stride=[1, 1], padding=[1, 1], dilation=[1, 1], output_padding=[0, 0], groups=2"}})
    // Rows of fewer and of more pixels than a matrix register holds, and than two.
    for (int64_t side : {9, 20, 41}) {
      const Sizes w{c.out, c.in / c.groups, c.kernel, c.kernel};
      // Channels last, as layouts make it of what lies between.
      const std::string length = std::to_string(side);
      expect_ours("graph @f(%x: bf16[2, " + std::to_string(c.in) + ", " + length + ", " + length + "]{" +
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

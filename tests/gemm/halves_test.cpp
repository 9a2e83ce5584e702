// tests/gemm/halves_test.cpp
// products and convolutions of float32 by weights that are halves: plans, packed memory, results
#include <gtest/gtest.h>

#include "codegen/cpu/gemm/from_plan.h"
#include "tests/gemm/run_graph.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using cpu::test::Ran;
using cpu::test::Sizes;

std::string list(const Sizes& sizes, char open = '[', char close = ']') {
  std::string text(1, open);
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + close;
}

std::string linear_of(const std::string& rows, int64_t n, int64_t k, const std::string& dtype) {
  const std::string columns = std::to_string(n), inner = std::to_string(k);
  return "graph @f(%x: f32[" + rows + ", " + inner + "], %h: " + dtype + "[" + columns + ", " + inner +
         "] param, %b: f32[" + columns + "] param) {\n  %w = cast(%h) {dtype=f32}\n" +
         "  %y = linear(%x, %w, %b)\n  %z = relu(%y)\n  return %z\n}";
}

std::string conv(const Sizes& x, const Sizes& w, int64_t stride, int64_t groups, const std::string& dtype) {
  const std::string pair = list({stride, stride}), pad = list({w[2] / 2, w[3] / 2});
  const Sizes channels_last{x[1] * x[2] * x[3], 1, x[1] * x[3], x[1]};
  return "graph @f(%x: f32" + list(x) + list(channels_last, '{', '}') + ", %h: " + dtype + list(w) +
         " param) {\n  %w = cast(%h) {dtype=f32}\n  %y = conv(%x, %w) {stride=" + pair + ", padding=" + pad +
         ", dilation=[1, 1], output_padding=[0, 0], groups=" + std::to_string(groups) + "}\n  return %y\n}";
}

constexpr double kSumsRounding = 2e-4;  // of sums of up to 20,000 products in float32

Target target_with_halves(testing::Isa isa) {
  Target target = testing::target_of(isa);
  target.f16c = true;
  return target;
}

/// Is it ours, right, and are the weights packed as they are?
void expect_halves(const std::string& text, const std::vector<Sizes>& sizes) {
  for (testing::Isa isa : testing::kVectorIsas) {
    const Target target = target_with_halves(isa);
    const Ran ran = cpu::test::run_graph(text, sizes, target);
    EXPECT_EQ(ran.contractions, 1) << ran.plan;
    EXPECT_EQ(ran.plan.find("cast"), std::string::npos) << ran.plan;
    EXPECT_LE(ran.difference, kSumsRounding) << target.key() << "\n" << ran.plan;
  }
}

TEST(Halves, LinearOfAllTails) {
  for (const char* dtype : {"bf16", "f16"})
    for (int64_t m : {1, 5, 37})
      for (int64_t n : {2, 31, 70})
        for (int64_t k : {1, 24, 770})
          expect_halves(linear_of(std::to_string(m), n, k, dtype), {{m, k}, {n, k}, {n}});
}

TEST(Halves, AnyNumberOfRows) {
  for (const char* dtype : {"bf16", "f16"})
    for (int64_t m : {1, 13, 90}) expect_halves(linear_of("s", 72, 96, dtype), {{m, 96}, {72, 96}, {72}});
}

// More panels than are made float32 at a time, and panels too long for that.
TEST(Halves, LongRows) {
  expect_halves(linear_of("40", 200, 4096, "bf16"), {{40, 4096}, {200, 4096}, {200}});
  expect_halves(linear_of("30", 50, 20000, "f16"), {{30, 20000}, {50, 20000}, {50}});
}

TEST(Halves, Convolutions) {
  struct Case {
    Sizes x, w;
    int64_t stride, groups;
  };
  for (const char* dtype : {"bf16", "f16"})
    for (const Case& c : std::vector<Case>{{{1, 16, 9, 9}, {24, 16, 1, 1}, 1, 1},
                                           {{2, 16, 9, 20}, {40, 16, 3, 3}, 1, 1},
                                           {{1, 3, 21, 21}, {33, 3, 3, 3}, 2, 1},
                                           {{1, 64, 4, 4}, {64, 32, 3, 3}, 1, 2}})
      expect_halves(conv(c.x, c.w, c.stride, c.groups, dtype), {c.x, c.w});
  // Not all panels are made float32 at once.
  const Sizes x{1, 240, 5, 5}, w{130, 240, 3, 3};
  expect_halves(conv(x, w, 1, 1, "bf16"), {x, w});
}

/// What the weights take when packed.
int64_t packed(const std::string& text, const Target& target) {
  const loops::Plan plan = loops::plan(graph::parse(text), options_that_generate(target));
  for (const loops::Step& s : plan.fold_steps)
    if (s.kind == loops::StepKind::Pack)
      return plan.buffers[static_cast<size_t>(s.buffers[1])].type.numel().value() * 4;
  return 0;
}

TEST(Halves, TakeHalfTheMemory) {
  const Target target = target_with_halves(testing::Isa::Avx2);
  EXPECT_EQ(packed(linear_of("8", 480, 96, "bf16"), target), 480 * 96 * 2);
  EXPECT_EQ(packed(conv({1, 16, 9, 9}, {96, 16, 3, 3}, 1, 1, "f16"), target), 96 * 16 * 9 * 2);
}

/// A depthwise convolution of images and weights of halves.
std::string depthwise(int64_t channels, int64_t side, int64_t stride, const std::string& dtype) {
  const Sizes x{2, channels, side, side}, w{channels, 1, 3, 3};
  const Sizes channels_last{channels * side * side, 1, channels * side, channels};
  return "graph @f(%x: " + dtype + list(x) + list(channels_last, '{', '}') + ", %w: " + dtype + list(w) +
         " param, %b: " + dtype + list({channels}) +
         " param) {\n  %y = conv(%x, %w, %b) {stride=" + list({stride, stride}) +
         ", padding=[1, 1], dilation=[1, 1], output_padding=[0, 0], groups=" + std::to_string(channels) +
         "}\n  %z = relu(%y)\n  return %z\n}";
}

TEST(Halves, DepthwiseConvolutions) {
  const Target target = target_with_halves(testing::Isa::Avx512);
  for (const char* dtype : {"bf16", "f16"})
    for (int64_t channels : {5, 32, 75})
      for (int64_t stride : {1, 2}) {
        const Ran ran =
            cpu::test::run_graph(depthwise(channels, 11, stride, dtype),
                                 {{2, channels, 11, 11}, {channels, 1, 3, 3}, {channels}}, target);
        EXPECT_EQ(ran.contractions, 1) << ran.plan;
        EXPECT_LE(ran.difference, 1.0 / 256) << ran.plan;
      }
}

// By weights that are not constant, that a tile of channels reads, and that a processor cannot make float32.
TEST(Halves, WhatStaysFloat32) {
  const Target target = target_with_halves(testing::Isa::Avx2);
  auto narrow = [&](const std::string& text) {
    const loops::Plan plan = loops::plan(graph::parse(text), options_that_generate(target));
    return loops::print(plan).find("cast") == std::string::npos;
  };
  const std::string text = linear_of("8", 48, 96, "bf16");
  EXPECT_TRUE(narrow(text));
  std::string argument = text;
  argument.replace(argument.find("] param"), 7, "]");
  EXPECT_FALSE(narrow(argument));
  EXPECT_FALSE(narrow(conv({1, 16, 9, 9}, {16, 1, 3, 3}, 1, 16, "bf16")));
  Target old = target;
  old.f16c = false;
  EXPECT_TRUE(
      loops::print(loops::plan(graph::parse(linear_of("8", 48, 96, "f16")), options_that_generate(old)))
          .find("cast") != std::string::npos);
}

}  // namespace
}  // namespace bolt::codegen::cpu::gemm

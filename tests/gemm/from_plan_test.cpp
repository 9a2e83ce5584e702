// tests/gemm/from_plan_test.cpp
// Graphs -> which contractions are generated, and as what.
#include <gtest/gtest.h>

#include "codegen/cpu/compile_plan.h"
#include "codegen/cpu/gemm/from_plan.h"
#include "tests/gemm/harness.h"

namespace bolt::codegen::cpu::gemm::test {
namespace {

/// The contractions' text, one line each, then the kinds of the other steps.
std::string plan_of(const std::string& graph, Isa isa = Isa::Avx512) {
  const Target target = target_of(isa);
  const loops::Plan plan = loops::plan(graph::parse(graph), plan_options(target));
  std::string out;
  for (const loops::Step& s : plan.steps) {
    if (s.kind == loops::StepKind::Contraction) {
      const ScheduledContraction item = contraction_of(plan, s, target);
      const std::string text = print(item.contraction);
      out += text.substr(0, text.find('\n')) + "\n";
    } else {
      out += s.kind == loops::StepKind::Library ? "library\n" : "kernel\n";
    }
  }
  return out;
}

TEST(FromPlan, LinearOfContiguousRows) {
  EXPECT_EQ(plan_of(R"(graph @f(%x: f32[2, 5, 24], %w: f32[40, 24] param, %b: f32[40] param) {
  %y = linear(%x, %w, %b)
  %z = gelu(%y)
  return %z
})"),
            "gemm @linear_gelu_0 [10 x 40 x 24] a=b0[24, 1] b=b1 packed\n");
}

TEST(FromPlan, RowsThatDoNotJoinAreABatch) {
  EXPECT_EQ(plan_of(R"(graph @f(%x: f32[2, 5, 24]{400, 48, 1}, %w: f32[40, 24] param) {
  %y = linear(%x, %w)
  return %y
})"),
            "gemm @linear_0 [2 (a 400, b 0), 5 x 40 x 24] a=b0[48, 1] b=b1 packed\n");
}

TEST(FromPlan, RowsMayBeSymbolic) {
  EXPECT_EQ(plan_of(R"(graph @f(%x: f32[s0, 24], %w: f32[40, 24] param) {
  %y = linear(%x, %w)
  return %y
})"),
            "gemm @linear_0 [s0 x 40 x 24] a=b0[24, 1] b=b1 packed\n");
}

TEST(FromPlan, TransposedWeightsArePackedFromWhereTheyLie) {
  EXPECT_EQ(plan_of(R"(graph @f(%x: f32[10, 24], %w: f32[24, 40] param) {
  %t = permute(%w) {dims=[1, 0]}
  %y = linear(%x, %t)
  return %y
})"),
            "gemm @linear_0 [10 x 40 x 24] a=b0[24, 1] b=b1 packed\n");
}

TEST(FromPlan, WhatTheLibraryKeeps) {
  const char* plain = R"(graph @f(%x: f32[10, 24], %w: f32[40, 24] param) {
  %y = linear(%x, %w)
  return %y
})";
  EXPECT_EQ(plan_of(plain, Isa::Scalar), "library\n");
  for (const char* signature :
       {"%x: f32[10, 24], %w: f32[40, 24]", "%x: f64[10, 24], %w: f64[40, 24] param",
        "%x: f32[0, 24], %w: f32[40, 24] param", "%x: f32[10, 24], %w: f32[1, 24] param",
        "%x: f32[10, 24]{1, 10}, %w: f32[40, 24] param"}) {
    std::string text = "graph @f(" + std::string(signature) + ") {\n  %y = linear(%x, %w)\n  return %y\n}";
    EXPECT_EQ(plan_of(text), "library\n") << signature;
  }
}

TEST(FromPlan, PlanIsCompiledAsOneBatch) {
  const Target target = target_of(Isa::Avx512);
  const loops::Plan plan =
      loops::plan(graph::parse(R"(graph @f(%x: f32[10, 24], %w: f32[40, 24] param, %b: f32[40] param) {
  %y = linear(%x, %w, %b)
  %z = softmax(%y) {dim=1}
  return %z
})"),
                  plan_options(target));
  const PlanCode code = compile(plan, target);
  ASSERT_EQ(code.module->kernels().size(), plan.kernels.size());
  for (size_t i = 0; i < plan.kernels.size(); ++i) EXPECT_NE(code.module->kernels()[i].fn, nullptr);
  EXPECT_TRUE(code.contractions[0].has_value());
}

}  // namespace
}  // namespace bolt::codegen::cpu::gemm::test

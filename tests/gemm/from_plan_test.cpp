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
  const loops::Plan plan = loops::plan(graph::parse(graph), options_that_generate(target));
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

/// A graph of one convolution.
std::string conv_graph(const std::string& x, const std::string& w, const std::string& attributes) {
  return "graph @f(%x: " + x + ", %w: " + w + " param) {\n  %y = conv(%x, %w) {" + attributes +
         "}\n  return %y\n}";
}
const char* const kPlain = "stride=[1, 1], padding=[1, 1], dilation=[1, 1], output_padding=[0, 0]";

TEST(FromPlan, Convolutions) {
  EXPECT_EQ(plan_of(conv_graph("f32[2, 16, 8, 9]{1152, 1, 144, 16}", "f32[32, 16, 3, 3]", kPlain)),
            "conv @conv_0 [2, 8 x 9, 16] -> [8 x 9, 32] kernel 3 x 3 stride 1 x 1 pad 1 x 1 dilation 1 x 1 "
            "groups 1 x=b0[1152, 144, 16, 1] w=b1\n");
  // An image with planes apart is taken while there is little of it.
  EXPECT_EQ(plan_of(conv_graph("f32[1, 3, 8, 9]", "f32[32, 3, 3, 3]", kPlain)),
            "conv @conv_0 [1, 8 x 9, 3] -> [8 x 9, 32] kernel 3 x 3 stride 1 x 1 pad 1 x 1 dilation 1 x 1 "
            "groups 1 x=b0[216, 9, 1, 72] w=b1\n");
  EXPECT_EQ(plan_of(conv_graph("f32[1, 16, 40]{640, 1, 16}", "f32[16, 1, 4]",
                               "stride=[1], padding=[3], dilation=[1], output_padding=[0], groups=16")),
            "conv @conv_0 [1, 1 x 40, 16] -> [1 x 43, 16] kernel 1 x 4 stride 1 x 1 pad 0 x 3 dilation 1 x 1 "
            "groups 16 x=b0[640, 640, 16, 1] w=b1\n");
}

TEST(FromPlan, ConvolutionsThatTheLibraryKeeps) {
  const std::string groups = std::string(kPlain) + ", groups=";
  const std::string last = "{1152, 1, 144, 16}";
  for (const std::string& graph :
       {conv_graph("f32[2, 16, 8, 9]", "f32[4, 16, 3, 3]", kPlain),                // planes apart
        conv_graph("f32[2, 16, 8, 9]", "f32[16, 1, 3, 3]", groups + "16"),         // the same
        conv_graph("f32[2, 16, 8, 9]" + last, "f32[16, 8, 3, 3]", groups + "2"),   // narrow groups
        conv_graph("f32[2, 16, 8, 9]" + last, "f32[32, 1, 3, 3]", groups + "16"),  // the same
        conv_graph("f64[2, 16, 8, 9]" + last, "f64[16, 16, 3, 3]", kPlain),        // another type
        conv_graph("f32[s0, 16, s1, 9]", "f32[32, 16, 3, 3]", kPlain),             // unknown height
        conv_graph("f32[2, 16, 8, 9]" + last, "f32[16, 4, 2, 2]", std::string(kPlain) + ", transposed=true")})
    EXPECT_EQ(plan_of(graph), "library\n") << graph;
}

TEST(FromPlan, PlanIsCompiledAsOneBatch) {
  const char* graph = R"(graph @f(%x: f32[10, 24], %w: f32[40, 24] param, %b: f32[40] param) {
  %y = linear(%x, %w, %b)
  %z = softmax(%y) {dim=1}
  return %z
})";
  for (Isa isa : testing::kVectorIsas) {
    const Target target = target_of(isa);
    const loops::Plan plan = loops::plan(graph::parse(graph), options_that_generate(target));
    if (!testing::runs_here(target)) {
      testing::look_at(assemble(plan, target), target);
      continue;
    }
    PlanCompilation compilation(plan, target);
    const std::vector<CompiledKernel> before = compilation.kernels();
    const PlanFunctions code = compilation.finish();
    ASSERT_EQ(code.module->kernels().size(), plan.kernels.size());
    for (size_t i = 0; i < plan.kernels.size(); ++i) {
      EXPECT_EQ(before[i].fn, nullptr);
      EXPECT_NE(code.kernels[i].fn, nullptr);
      EXPECT_EQ(before[i].work, code.kernels[i].work);
    }
    EXPECT_TRUE(code.contractions[0].has_value());
  }
}

}  // namespace
}  // namespace bolt::codegen::cpu::gemm::test

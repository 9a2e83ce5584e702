// tests/opt/opt_test.cpp
// From the text of each stage to each later one, and what is refused.
#include "opt/opt.h"

#include <gtest/gtest.h>

#include "support/error.h"

namespace bolt::opt {
namespace {

constexpr const char* kGraph = R"(; a comment before the first word
graph @f(%x: f32[4, 8]) {
  %a = exp(%x)
  %b = sum(%a) {dims=[1], keepdim=true}
  %c = div(%a, %b)
  return %c
})";

std::string opt(const std::string& text, std::vector<std::string> arguments) {
  arguments.emplace_back("-");
  return run(text, read_options(arguments)).text;
}
std::string fault(const std::string& text, const std::vector<std::string>& arguments) {
  try {
    return opt(text, arguments) + "no fault";
  } catch (const Error& e) {
    return e.kind() == ErrorKind::User ? e.what() : std::string("another kind of error: ") + e.what();
  }
}

TEST(Opt, EveryStageIsReachedFromEachBefore) {
  const std::string graph = opt(kGraph, {}), plan = opt(kGraph, {"--emit=plan"}),
                    kernels = opt(kGraph, {"--emit=kernels"});
  EXPECT_EQ(stage_of(kGraph), "graph");
  EXPECT_EQ(stage_of(plan), "plan");
  EXPECT_EQ(stage_of(kernels), "kernels");
  EXPECT_EQ(opt(graph, {}), graph);
  EXPECT_EQ(opt(plan, {}), plan);
  EXPECT_EQ(opt(kernels, {}), kernels);
  EXPECT_EQ(opt(graph, {"--emit=plan"}), plan);
  for (const char* stage : {"kernels", "schedule", "llvm", "asm", "cuda"}) {
    const std::string option = std::string("--emit=") + stage, made = opt(graph, {option});
    EXPECT_NE(made, "") << stage;
    EXPECT_EQ(opt(plan, {option}), made) << stage;
    EXPECT_EQ(opt(kernels, {option}), made) << stage;
  }
}

TEST(Opt, PassesRunAndAreTimed) {
  OptOptions options = read_options({"--passes=standard", "--verify-each", "--time", "-"});
  const OptResult result = run("graph @f(%x: f32[4]) {\n  %a = neg(%x)\n  return %x\n}", options);
  EXPECT_EQ(result.text.find("neg"), std::string::npos);
  EXPECT_NE(result.report.find("dce"), std::string::npos);
}

TEST(Opt, FusionCanBeBisected) {
  auto kernels = [](const std::vector<std::string>& arguments) {
    const std::string text = opt(kGraph, arguments);
    int count = 0;
    for (size_t at = text.find("\nkernel @"); at != std::string::npos; at = text.find("\nkernel @", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(kernels({"--emit=plan"}), 1);
  EXPECT_EQ(kernels({"--emit=plan", "--no-fuse"}), 3);
  EXPECT_EQ(kernels({"--emit=plan", "--fuel=0"}), 3);
  EXPECT_EQ(kernels({"--emit=plan", "--fuel=1"}), 2);
}

TEST(Opt, HalvesAreRoundedWhereEagerRoundsThem) {
  const std::string graph =
      "graph @f(%x: bf16[4], %y: bf16[4]) {\n  %a = mul(%x, %y)\n  %b = add(%a, %x)\n  return %b\n}";
  auto roundings = [&](const std::vector<std::string>& arguments) {
    const std::string text = opt(graph, arguments);
    int count = 0;
    for (size_t at = text.find("cast bf16"); at != std::string::npos; at = text.find("cast bf16", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(roundings({"--emit=kernels"}), 1);
  EXPECT_EQ(roundings({"--emit=kernels", "--numerics=fast"}), 1);
  EXPECT_EQ(roundings({"--emit=kernels", "--numerics=eager"}), 2);
  EXPECT_THROW(opt(graph, {"--emit=kernels", "--numerics=exact"}), Error);
}

// A loss of a language model: one kernel reads all logits as float, another one a few of them.
constexpr const char* kCastBehindView = R"(graph @loss(%110: bf16[8, 512, 50257], %in0: i64[8, 512]) {
  %111 = cast(%110) {dtype=f32}
  %114 = reshape(%111) {sizes=[4096, 50257]}
  %112 = pad(%in0) {high=[0, 1], low=[0, 0], value=-100.0}
  %113 = slice(%112) {dim=1, length=512, start=1, step=1}
  %115 = reshape(%113) {sizes=[4096]}
  %116 = reshape(%115) {sizes=[4096, 1]}
  %117 = scalar() {dtype=i64, value=-100}
  %118 = ne(%116, %117)
  %120 = scalar() {dtype=i64, value=0}
  %121 = where(%118, %116, %120)
  %122 = scalar() {dtype=f32, value=1.0}
  %123 = scalar() {dtype=f32, value=0.0}
  %124 = where(%118, %122, %123)
  %125 = sum(%124) {dims=[0, 1], keepdim=false}
  %126 = amax(%114) {dims=[1], keepdim=true}
  %127 = sub(%114, %126)
  %128 = exp(%127)
  %129 = sum(%128) {dims=[1], keepdim=true}
  %130 = log(%129)
  %131 = gather(%114, %121) {dim=1}
  %132 = sub(%131, %126)
  %133 = sub(%132, %130)
  %134 = neg(%133)
  %135 = mul(%134, %124)
  %137 = where(%118, %135, %123)
  %138 = sum(%137) {dims=[0, 1], keepdim=false}
  %139 = div(%138, %125)
  return %139
})";

TEST(Opt, ACastThatIsReadThroughAViewIsDoneAgainAndNotStored) {
  const std::string plan = opt(kCastBehindView, {"--target=cuda", "--emit=plan"});
  EXPECT_EQ(plan.find("f32[8, 512, 50257]"), std::string::npos) << plan;
}

TEST(Opt, WhatEndsAContractionIsPartOfItsCode) {
  const std::string kernel =
      "kernel @end (out %b0: f32) space [4 d0, 8 d1] {\n  %0 = acc f32\n"
      "  store b0[8*d0 + d1] = %0\n}\n";
  EXPECT_EQ(opt(kernel, {"--emit=llvm"}), "; @end ends a contraction\n");
  EXPECT_EQ(opt(kernel, {"--emit=asm"}), "; @end ends a contraction\n");
  const std::string plan =
      "plan @f\n  b0 = input 0: f32[4, 16]\n  b1 = input 1: f32[8, 16]\n"
      "  b2 = fold: f32[128]\n  b3 = output 0: f32[4, 8]\n"
      "fold:\n  pack for @end (b1) -> (b2)\n"
      "run:\n  0: contraction linear with @end (b0, b2) -> (b3)\nreturn b3\n";
  EXPECT_NE(opt(plan + kernel, {"--emit=asm"}).find("ret"), std::string::npos);
}

TEST(Opt, Faults) {
  const std::string plan = opt(kGraph, {"--emit=plan"});
  struct {
    std::string text;
    std::vector<std::string> arguments;
    const char* message;
  } const cases[] = {
      {kGraph, {"--emit=ptx"}, "there is no stage 'ptx'; there are: tape, graph, plan"},
      {kGraph, {"--emit"}, "unknown option --emit"},
      {plan, {"--emit=graph"}, "the text is of the stage plan, and graph comes before it"},
      {plan, {"--passes=dce"}, "are for graphs"},
      {"tape {\n}", {}, "python -m torchbolt.opt"},
      {"; only a comment\nprogram @f", {}, "line 2: a text begins with tape, graph, plan or kernel"},
      {kGraph, {"--target=tpu", "--emit=plan"}, "--target is cpu or cuda"},
  };
  for (const auto& c : cases)
    EXPECT_NE(fault(c.text, c.arguments).find(c.message), std::string::npos) << fault(c.text, c.arguments);
  EXPECT_NE(fault(kGraph, {"--fuel=x", "--emit=plan"}).find("--fuel is a number"), std::string::npos);
  EXPECT_NE(fault(kGraph, {"--apart=-1", "--emit=plan"}).find("--apart is a number"), std::string::npos);
  EXPECT_NE(fault(kGraph, {"--free=0,x", "--emit=plan"}).find("--free is numbers"), std::string::npos);
  EXPECT_THROW(read_options({}), Error);
  EXPECT_THROW(read_options({"a.ir", "b.ir"}), Error);
}

}  // namespace
}  // namespace bolt::opt

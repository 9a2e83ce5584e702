// tests/codegen/targets_test.cpp
// What a machine may run, what is refused, and which instructions code for each target is made of, looked at
// on every machine; and the line that says what the whole run left out.

#include "tests/codegen/targets.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>

#include "codegen/cpu/compile_plan.h"
#include "support/error.h"

namespace bolt::codegen::cpu::testing {
namespace {

class Report : public ::testing::Environment {
  void TearDown() override {
    std::string text;
    for (Isa isa : {Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Amx})
      if (runs_here(target_of(isa))) text += (text.empty() ? "" : ", ") + instructions_of(target_of(isa));
    for (const auto& [name, count] : left_out())
      text += "; left out " + std::to_string(count) + " runs of " + name + ", whose code was only looked at";
    std::printf("instruction sets that ran: %s\n", text.c_str());
  }
};
const auto* const kReport = ::testing::AddGlobalTestEnvironment(new Report);

// ---- what a machine may run

const std::set<std::string> kHaswell = {"avx",   "avx2",  "fma",    "bmi", "bmi2",
                                        "lzcnt", "movbe", "popcnt", "f16c"};

std::set<std::string> with(std::set<std::string> features, const std::set<std::string>& more) {
  features.insert(more.begin(), more.end());
  return features;
}
std::set<std::string> without(std::set<std::string> features, const std::string& one) {
  features.erase(one);
  return features;
}

const std::set<std::string> kSkylake =
    with(kHaswell, {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"});
const std::set<std::string> kGranted = {"amx-tile", "amx-bf16"};  // of a process that may use them
const std::set<std::string> kSapphireRapids = with(kSkylake, {"avx512bf16", "avx512fp16"});

std::string may_run(const std::set<std::string>& features, std::string_view wanted = "native") {
  return instructions_of(target_of_features(features, wanted));
}

TEST(Targets, AreTheWidestWhoseFeaturesAreAllThere) {
  EXPECT_EQ(may_run({}), "scalar");
  EXPECT_EQ(may_run(kHaswell), "avx2+f16c");
  EXPECT_EQ(may_run(without(kHaswell, "f16c")), "avx2");
  for (const char* one : {"avx2", "fma", "bmi", "bmi2", "lzcnt", "movbe", "popcnt"})
    EXPECT_EQ(may_run(without(kSapphireRapids, one)), "scalar") << one;
  EXPECT_EQ(may_run(kSkylake), "avx512+f16c");
  EXPECT_EQ(may_run(without(kSapphireRapids, "avx512cd")), "avx2+f16c");
  EXPECT_EQ(may_run(kSapphireRapids), "avx512+f16c+bf16+fp16");
  EXPECT_EQ(may_run(with(kSapphireRapids, kGranted)), "amx+f16c+bf16+fp16");
  EXPECT_EQ(may_run(with(kSapphireRapids, {"amx-bf16"})), "avx512+f16c+bf16+fp16");
}

TEST(Targets, AreNarrowedByTheKnob) {
  EXPECT_EQ(may_run(kSapphireRapids, "avx512"), "avx512+f16c+bf16+fp16");
  EXPECT_EQ(may_run(with(kSapphireRapids, kGranted), "avx512"), "avx512+f16c+bf16+fp16");
  EXPECT_EQ(may_run(kSapphireRapids, "avx2"), "avx2+f16c");
  EXPECT_EQ(may_run(kSapphireRapids, "scalar"), "scalar");
  EXPECT_EQ(may_run({}, "scalar"), "scalar");
}

std::string complaint(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.kind() == ErrorKind::User ? e.what() : std::string("of another kind: ") + e.what();
  }
  return "none";
}

TEST(Targets, TheKnobDoesNotAskForMoreThanThereIs) {
  auto asking = [](const std::set<std::string>& features, std::string_view wanted) {
    return complaint([&] { target_of_features(features, wanted); });
  };
  EXPECT_EQ(asking(kHaswell, "avx512").rfind("TORCHBOLT_ISA=avx512: this machine runs at most avx2", 0), 0u);
  EXPECT_EQ(asking(kSkylake, "amx").rfind("TORCHBOLT_ISA=amx: this machine runs at most avx512", 0), 0u);
  EXPECT_EQ(asking({}, "avx2").rfind("TORCHBOLT_ISA=avx2: this machine runs at most scalar", 0), 0u);
  EXPECT_EQ(asking(kHaswell, "mmx"), "TORCHBOLT_ISA must be native, amx, avx512, avx2 or scalar, not 'mmx'");
}

TEST(Targets, SayWhatTheyLack) {
  const Target haswell = target_of_features(kHaswell, "native");
  const Target rapids = target_of_features(kSapphireRapids, "native");
  EXPECT_EQ(rapids.lacks(haswell), "");
  EXPECT_EQ(haswell.lacks(rapids), "avx512, bf16, fp16");
  EXPECT_EQ(target_of(Isa::Scalar).lacks(haswell), "avx2, f16c");
  EXPECT_EQ(target_of_features(kSkylake, "native").lacks(rapids), "bf16, fp16");
}

/// Every combination that code is emitted for.
std::vector<Target> every_target() {
  std::vector<Target> all;
  for (const auto& features :
       {with(kSapphireRapids, kGranted), kSapphireRapids, kSkylake, kHaswell, without(kHaswell, "f16c"), {}})
    all.push_back(target_of_features(features, "native"));
  return all;
}

TEST(Targets, HaveKeysOfTheirOwn) {
  std::set<std::string> keys;
  for (const Target& t : every_target()) keys.insert(t.key());
  EXPECT_EQ(keys.size(), every_target().size());
}

// ---- code

const char* const kExp = R"(kernel @exp (in %b0: f32, out %b1: f32) space [100 d0] {
  %0 = load b0[d0]
  %1 = exp %0
  store b1[d0] = %1
})";

// With everything in this process hidden but the scalar form, all others are refused.
TEST(Targets, AreRefusedWhereTheyCannotRun) {
  for (const Target& t : every_target()) {
    SCOPED_TRACE(t.key());
    const std::string said = complaint([&] { compile({loops::parse_kernel(kExp)}, t); });
    if (runs_here(t)) {
      EXPECT_EQ(said, "none");
    } else {
      EXPECT_EQ(said.rfind("code for " + t.key() + " cannot run here: there is no ", 0), 0u) << said;
    }
  }
}

TEST(Targets, HaveCodeOfTheirOwn) {
  std::vector<std::unique_ptr<Module>> modules;
  std::set<KernelFn> functions;
  for (const Target& t : every_target()) {
    if (!runs_here(t)) continue;
    modules.push_back(compile({loops::parse_kernel(kExp)}, t));
    functions.insert(modules.back()->kernels()[0].fn);
  }
  EXPECT_EQ(functions.size(), modules.size());
}

// scripts/test.sh asks by this test whether the machine has what TORCHBOLT_ISA names.
TEST(Targets, TheHostRunsItself) { EXPECT_EQ(Target::host().lacks(Target::host()), ""); }

const char* const kKernels[] = {kExp,
                                R"(kernel @rows (in %b0: f16, out %b1: f32) space [70 d0, 100 d1 reduce] {
  %0 = load b0[100*d0 + d1]
  %1 = cast f32 %0
  %2 = tanh %1
  %3 = reduce sum %2 over d1
  store b1[d0] = %3
})",
                                R"(kernel @gather (in %b0: f64, in %b1: i64, out %b2: bf16) space [300 d0] {
  %0 = load b1[d0]
  %1 = load b0[0; %0 * 1]
  %2 = floor %1
  %3 = cast bf16 %2
  store b2[d0] = %3
})"};

TEST(Instructions, OfKernelsAreTheTargets) {
  for (const Target& t : every_target())
    for (const char* text : kKernels) {
      const Assembled code = assemble({loops::parse_kernel(text)}, t);
      EXPECT_EQ(foreign_word(code.text, t), "") << text << "\nfor " << t.key() << "\n" << code.text;
      EXPECT_EQ(code.object.substr(0, 4), "\177ELF");
    }
}

TEST(Instructions, FillTheWidestRegisters) {
  const char* const registers[] = {"%xmm0", "%ymm0", "%zmm0"};
  for (Isa isa : kIsas) {
    const std::string text = assemble({loops::parse_kernel(kExp)}, target_of(isa)).text;
    EXPECT_TRUE(words_of(text).contains(registers[static_cast<int>(isa)])) << text;
  }
}

TEST(Instructions, GatherWhatIsStridedByOnePointerAndDistancesOf32Bits) {
  const loops::Kernel kernel = loops::parse_kernel(
      R"(kernel @strided (in %b0: f32, out %b1: f32) space [100 d0, 64 d1] {
  %0 = load b0[448*d0 + 7*d1]
  store b1[64*d0 + d1] = %0
})");
  const std::set<std::string> words = words_of(assemble({kernel}, target_of(Isa::Avx512)).text);
  EXPECT_TRUE(words.contains("vgatherdps"));
  EXPECT_FALSE(words.contains("vgatherqps"));
}

TEST(Instructions, OfContractionsAreTheTargets) {
  const std::string graphs[] = {
      R"(graph @f(%x: f32[10, 24], %w: f32[40, 24] param, %b: f32[40] param) {
  %y = linear(%x, %w, %b)
  %z = gelu(%y)
  return %z
})",
      R"(graph @f(%x: f32[2, 16, 8, 9]{1152, 1, 144, 16}, %w: f32[32, 16, 3, 3] param) {
  %y = conv(%x, %w) {stride=[1, 1], padding=[1, 1], dilation=[1, 1], output_padding=[0, 0]}
  %z = relu(%y)
  return %z
})",
      R"(graph @f(%q: f32[1, 2, 20, 16], %k: f32[1, 2, 30, 16], %v: f32[1, 2, 30, 16]) {
  %y = sdpa(%q, %k, %v)
  return %y
})",
      R"(graph @f(%x: bf16[40, 64], %w: bf16[64, 64] param) {
  %y = linear(%x, %w)
  return %y
})"};
  for (const std::string& graph : graphs)
    for (const Target& t : every_target()) {
      const std::string text = assemble(loops::plan(graph::parse(graph), options_that_generate(t)), t).text;
      EXPECT_EQ(foreign_word(text, t), "") << graph << "\nfor " << t.key() << "\n" << text;
    }
}

TEST(Instructions, OfAnotherTargetAreFound) {
  const Target avx2 = target_of(Isa::Avx2), scalar = target_of(Isa::Scalar);
  EXPECT_EQ(foreign_word("\taddps\t%xmm1, %xmm0\n", scalar), "");
  EXPECT_EQ(foreign_word("\tvaddps\t%xmm1, %xmm0, %xmm2\n", scalar), "vaddps of AVX");
  EXPECT_EQ(foreign_word("\troundps\t$9, %xmm1, %xmm0\n", scalar), "roundps of SSE4");
  EXPECT_EQ(foreign_word("\tshlxq\t%rax, %rcx, %rdx\n", scalar), "shlxq of BMI");
  EXPECT_EQ(foreign_word("\tvaddps\t(%rax), %ymm1, %ymm0  # 32-byte %zmm0\n", avx2), "");
  EXPECT_EQ(foreign_word("\tvaddps\t(%rax), %zmm1, %zmm0\n", avx2), "%zmm0 of AVX-512");
  EXPECT_EQ(foreign_word("\tvaddps\t(%rax), %ymm1, %ymm17\n", avx2), "%ymm17 of AVX-512");
  EXPECT_EQ(foreign_word("\tvaddps\t(%rax){1to8}, %ymm1, %ymm0\n", avx2), "{1to8 of AVX-512");
  EXPECT_EQ(foreign_word("\tvcvtph2ps\t%xmm1, %ymm0\n", avx2), "vcvtph2ps of F16C");
  EXPECT_EQ(foreign_word("\tvdpbf16ps\t%zmm1, %zmm0, %zmm2\n", target_of(Isa::Avx512)),
            "vdpbf16ps of AVX512-BF16");
  EXPECT_EQ(foreign_word("\ttdpbf16ps\t%tmm7, %tmm5, %tmm3\n", target_of(Isa::Avx512)), "%tmm3 of AMX");
  EXPECT_EQ(foreign_word("\ttdpbf16ps\t%tmm7, %tmm5, %tmm3\n", target_of(Isa::Amx)), "");
}

}  // namespace
}  // namespace bolt::codegen::cpu::testing

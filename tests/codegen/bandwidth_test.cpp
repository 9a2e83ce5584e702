// tests/codegen/bandwidth_test.cpp
// What large kernels have and small ones do not: reductions in two phases, column sweeps, stores past the
// caches.

#include "codegen/cpu/split.h"
#include "tests/codegen/run_kernel.h"

namespace bolt::codegen::cpu::testing {
namespace {

std::string sum_kernel(const std::string& space, const std::string& load, const std::string& over,
                       const std::string& store) {
  return "kernel @k (in %b0: f32, out %b1: f32) space [" + space + "] {\n  %0 = load b0[" + load +
         "]\n  %1 = mul %0, %0\n  %2 = reduce sum %1 over " + over + "\n  %3 = neg %2\n  store b1[" + store +
         "] = %3\n}\n";
}

const Case kColumns{sum_kernel("1024 d0 reduce, 512 d1", "512*d0 + d1", "d0", "d1"), {}};
const Case kUneven{sum_kernel("300007 d0 reduce", "d0", "d0", "0"), {}};

const Named kLargeCases[] = {
    {"columns", kColumns},
    {"columns_uneven", {sum_kernel("1001 d0 reduce, 333 d1", "333*d0 + d1", "d0", "d1"), {}}},
    {"columns_of_batches",
     {sum_kernel("3 d0, 130 d1 reduce, 700 d2", "91000*d0 + 700*d1 + d2", "d1", "700*d0 + d2"), {}}},
    {"columns_two_axes",
     {sum_kernel("300 d0 reduce, 5 d1, 9 d2 reduce, 70 d3", "3150*d0 + 630*d1 + 70*d2 + d3", "d0, d2",
                 "70*d1 + d3"),
      {}}},
    {"columns_symbolic",
     {"kernel @k (in %b0: f32, out %b1: f32) space [40 d0 reduce, s0 d1] syms [s0] {\n  %0 = load b0[s0*d0 + "
      "d1]\n  %1 = reduce max %0 over d0\n  store b1[d1] = %1\n}\n",
      {1337}}},
    {"columns_mean_and_most",
     {R"(kernel @k (in %b0: bf16, in %b1: f32, out %b2: f32, out %b3: bf16) space [77 d0 reduce, 200 d1] {
  %0 = load b0[200*d0 + d1]
  %1 = cast f32 %0
  %2 = reduce sum %1 over d0
  %3 = reduce max %1 over d0
  %4 = load b1[d1]
  %5 = mul %2, %4
  %6 = cast bf16 %3
  store b2[d1] = %5
  store b3[d1] = %6
})",
      {}}},
    {"all", {sum_kernel("262144 d0 reduce", "d0", "d0", "0"), {}}},
    {"all_uneven", kUneven},
    {"few_rows", {sum_kernel("3 d0, 100003 d1 reduce", "100003*d0 + d1", "d1", "d0"), {}}},
    {"any",
     {R"(kernel @k (in %b0: i64, out %b1: b8) space [300000 d0 reduce] {
  %0 = load b0[d0]
  %1 = const i64 7
  %2 = gt %0, %1
  %3 = reduce any %2 over d0
  store b1[0] = %3
})",
      {}}},
};

class Large : public ::testing::TestWithParam<Named> {};
TEST_P(Large, EqualTheReference) { check(GetParam().c); }
INSTANTIATE_TEST_SUITE_P(All, Large, ::testing::ValuesIn(kLargeCases),
                         [](const auto& info) { return info.param.name; });

TEST(Split, Text) {
  auto s = split_reduction(normalise(loops::parse_kernel(kColumns.text)), host_with(Isa::Avx512));
  ASSERT_TRUE(s);
  EXPECT_EQ(
      loops::print(s->first),
      "kernel @k_first (in %b0: f32, out %b1: f32, out %b2: f32) space [32 d0, 32 d1 reduce, 512 d2] {\n"
      "  %0 = load b0[16384*d0 + 512*d1 + d2]\n"
      "  %1 = mul %0, %0\n"
      "  %2 = reduce sum %1 over d1\n"
      "  store b2[512*d0 + d2] = %2\n"
      "}\n");
  EXPECT_EQ(loops::print(s->second),
            "kernel @k (in %b0: f32, out %b1: f32, in %b2: f32) space [32 d0 reduce, 512 d1] {\n"
            "  %0 = load b2[512*d0 + d1]\n"
            "  %1 = reduce sum %0 over d0\n"
            "  %2 = neg %1\n"
            "  store b1[d1] = %2\n"
            "}\n");
  EXPECT_EQ(s->scratch_bytes, 32 * 512 * 4);
}

TEST(Split, ChunksNeedNotBeEven) {
  auto s = split_reduction(normalise(loops::parse_kernel(kUneven.text)), host_with(Isa::Avx512));
  ASSERT_TRUE(s);
  EXPECT_EQ(s->first.dims[1].size.str(), "min(-10240*d0 + 300007, 10240)");
}

TEST(Split, LeavesWhole) {
  auto split = [](const std::string& text) {
    return split_reduction(normalise(loops::parse_kernel(text)), host_with(Isa::Avx512)).has_value();
  };
  EXPECT_FALSE(split(sum_kernel("1000 d0 reduce", "d0", "d0", "0"))) << "small";
  EXPECT_FALSE(split(sum_kernel("64 d0, 8192 d1 reduce", "8192*d0 + d1", "d1", "d0"))) << "enough rows";
  EXPECT_FALSE(split(R"(kernel @softmax (in %b0: f32, out %b1: f32) space [2 d0, 500000 d1 reduce] {
  %0 = load b0[500000*d0 + d1]
  %1 = reduce max %0 over d1
  %2 = sub %0, %1
  store b1[500000*d0 + d1] = %2
})")) << "the result is spread again";
}

// The bits of a sum do not depend on how its items are shared out.
TEST(Split, SameOnAnyNumberOfThreads) {
  const loops::Kernel k = loops::parse_kernel(kUneven.text);
  auto module = compile({k}, widest_here());
  const CompiledKernel& compiled = module->kernels()[0];
  std::vector<float> x(300007);
  std::mt19937 random(3);
  for (float& v : x) v = static_cast<float>(random() % 1000) / 7;
  std::vector<uint8_t> scratch(static_cast<size_t>(compiled.scratch_bytes));
  std::vector<float> sums;
  for (int64_t threads : {1, 2, 3, 5}) {
    float sum = 0;
    void* pointers[] = {x.data(), &sum, scratch.data()};
    const int64_t work = compiled.work.value(), part = (work + threads - 1) / threads;
    for (int64_t from = 0; from < work; from += part)
      compiled.fn(pointers, nullptr, from, std::min(work, from + part));
    compiled.second_fn(pointers, nullptr, 0, compiled.second_work.value());
    sums.push_back(sum);
  }
  for (float s : sums) EXPECT_EQ(s, sums[0]);
}

// Every large enough output is streamed when the cache is said to be tiny; memory may be aligned or not.
TEST(Stream, EqualsTheReference) {
  const std::string texts[] = {
      R"(kernel @chain (in %b0: f32, out %b1: f32, out %b2: bf16) space [3 d0, 2052 d1] {
  %0 = load b0[2052*d0 + d1]
  %1 = exp %0
  %2 = cast bf16 %1
  store b1[2064*d0 + d1] = %1
  store b2[2080*d0 + d1] = %2
})",
      R"(kernel @transpose (in %b0: f32, out %b1: f32) space [50 d0, 80 d1] {
  %0 = load b0[50*d1 + d0]
  store b1[80*d0 + d1] = %0
})",
      softmax_of_rows(5, 512)};
  for (const std::string& text : texts)
    for (Target t : targets())
      for (int64_t skew : {0, 1}) {
        t.l3_bytes = 1;
        Case c{text, {}};
        c.skew = skew;
        check_on(c, t);
      }
}

// Rows and squares of which the next are prefetched: near the end of the memory, too.
TEST(Ahead, EqualsTheReference) {
  const std::string texts[] = {
      softmax_of_rows(9, 517),
      R"(kernel @transpose_add (in %b0: f32, in %b1: f32, out %b2: f32) space [70 d0, 272 d1] {
  %0 = load b0[70*d1 + d0]
  %1 = load b1[272*d0 + d1]
  %2 = add %0, %1
  store b2[272*d0 + d1] = %2
})",
      R"(kernel @transpose_half (in %b0: bf16, out %b1: bf16) space [70 d0, 272 d1] {
  %0 = load b0[70*d1 + d0]
  store b1[272*d0 + d1] = %0
})",
      R"(kernel @transpose_double (in %b0: f64, out %b1: f64) space [70 d0, 272 d1] {
  %0 = load b0[70*d1 + d0]
  store b1[272*d0 + d1] = %0
})"};
  for (const std::string& text : texts)
    for (Target t : targets()) {
      t.l2_bytes = 8192;
      const loops::Kernel k = normalise(loops::parse_kernel(text));
      if (t.isa != Target::Isa::Scalar) {
        EXPECT_FALSE(schedule(k, t).ahead.empty()) << text;
      }
      check_on({text, {}}, t);
    }
}

// Sums of what is in no cache are read in half lines, columns in more rows at once; other kernels keep whole
// lines.
TEST(Reading, HalfLinesFromMemory) {
  const std::string row = R"(kernel @row (in %b0: f32, out %b1: f32) space [70 d0, 1000 d1 reduce] {
  %0 = load b0[1000*d0 + d1]
  %1 = reduce sum %0 over d1
  store b1[d0] = %1
})",
                    column = R"(kernel @column (in %b0: f32, out %b1: f32) space [70 d0 reduce, 1000 d1] {
  %0 = load b0[1000*d0 + d1]
  %1 = reduce sum %0 over d0
  store b1[d1] = %1
})",
                    nested = R"(kernel @centred (in %b0: f32, out %b1: f32) space [70 d0, 1000 d1 reduce] {
  %0 = load b0[1000*d0 + d1]
  %1 = reduce max %0 over d1
  %2 = sub %0, %1
  %3 = reduce sum %2 over d1
  store b1[d0] = %3
})";
  for (Target t : targets()) {
    if (t.isa == Target::Isa::Scalar) continue;
    const int whole = t.isa == Target::Isa::Avx512 ? 16 : 8;
    for (const std::string& text : {row, column, nested}) {
      const loops::Kernel k = normalise(loops::parse_kernel(text));
      t.l3_bytes = 1 << 30;
      EXPECT_EQ(schedule(k, t).lanes, whole) << text;
      t.l3_bytes = 100000;
      const LoopSchedule s = schedule(k, t);
      EXPECT_EQ(s.lanes, text == nested ? whole : 8) << text;
      EXPECT_EQ(s.sweep_rows, text == column ? 8 : 0);
      check_on({text, {}}, t);
    }
  }
}

// A piece of a cat is chosen for whole vectors: no masked load may touch a page that is not there.
TEST(Masks, OneForAllLanesChoosesTheAddress) {
  const std::string text = R"(kernel @cat (in %b0: f32, in %b1: f32, out %b2: f32) space [2 d0, 64 d1] {
  %0 = index d0
  %1 = const i64 1
  %2 = lt %0, %1
  %3 = logical_not %2
  %4 = load b0[d1] if %2 else 0
  %5 = load b1[64*d0 + d1 - 64] if %3 else 0
  %6 = where %2, %4, %5
  store b2[64*d0 + d1] = %6
})";
  check({text, {}});
  EXPECT_EQ(emit_text(loops::parse_kernel(text), host_with(Isa::Avx512), false).find("masked.load"),
            std::string::npos);
}

// A NaN is the largest and the smallest of all, wherever in the row it stands.
TEST(Extreme, KeepsNaN) {
  const loops::Kernel k = loops::parse_kernel(
      "kernel @m (in %b0: f32, out %b1: f32, out %b2: f32) space [200 d0, 200 d1 reduce] {\n"
      "  %0 = load b0[200*d0 + d1]\n  %1 = reduce max %0 over d1\n  %2 = reduce min %0 over d1\n"
      "  store b1[d0] = %1\n  store b2[d0] = %2\n}\n");
  for (const Target& t : targets()) {
    if (!runs_here(t)) {
      look_at(assemble({k}, t), t);
      continue;
    }
    auto module = compile({k}, t);
    std::vector<float> x(200 * 200), most(200), least(200);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (size_t row = 0; row < 199; ++row) x[row * 200 + row] = std::nanf("");
    void* pointers[] = {x.data(), most.data(), least.data()};
    module->kernels()[0].fn(pointers, nullptr, 0, module->kernels()[0].work.value());
    for (size_t row = 0; row < 199; ++row) {
      EXPECT_TRUE(std::isnan(most[row])) << row;
      EXPECT_TRUE(std::isnan(least[row])) << row;
    }
    EXPECT_EQ(most[199], 3);
    EXPECT_EQ(least[199], -3);
  }
}

TEST(Stream, OnlyWholeLinesOfLargeBuffers) {
  auto streams = [](const char* store, int64_t l3) {
    Target t = host_with(Isa::Avx512);
    t.l3_bytes = l3;
    const std::string text = std::string("kernel @k (in %b0: f32, out %b1: f32) space [64 d0, 1024 d1] {\n") +
                             "  %0 = load b0[d1]\n  store b1[" + store + "] = %0\n}\n";
    return !schedule(normalise(loops::parse_kernel(text)), t).streamed.empty();
  };
  EXPECT_TRUE(streams("1024*d0 + d1", 64 * 1024 * 4));
  EXPECT_FALSE(streams("1024*d0 + d1", 64 * 1024 * 4 + 1)) << "fits the cache";
  EXPECT_FALSE(streams("1025*d0 + d1", 1)) << "lines are not aligned";
  EXPECT_FALSE(streams("1024*d0 + d1 + 1", 1)) << "lines are not aligned";
}

}  // namespace
}  // namespace bolt::codegen::cpu::testing

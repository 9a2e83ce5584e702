// tests/codegen/kernel_test.cpp
// Every form of kernel that codegen/cpu knows, on every instruction set this machine has, against the
// reference.

#include <sys/mman.h>
#include <unistd.h>

#include "support/symbols.h"
#include "tests/codegen/run_kernel.h"

namespace bolt::codegen::cpu::testing {
namespace {

constexpr const char* kCheckedRows =
    R"(kernel @rows (in %b0: f32, in %b1: i64, out %b2: f32) space [9 d0, 50 d1] {
  %0 = load b1[d0]
  %1 = const i64 8
  %2 = check %0 below %1
  %3 = load b0[d1; %2 * 50]
  store b2[50*d0 + d1] = %3
})";

constexpr const char* kCheckedLanes =
    R"(kernel @lanes (in %b0: f32, in %b1: i64, out %b2: f32) space [53 d0] {
  %0 = load b1[d0]
  %1 = const i64 8
  %2 = check %0 below %1
  %3 = load b0[0; %2 * 1]
  store b2[d0] = %3
})";

// Pairs of what lies in two buffers.
constexpr const char* kBetween =
    R"(kernel @between (in %b0: f32, in %b1: bf16, out %b2: f32, out %b3: bf16, out %b4: b8) space [3 d0, 77 d1, 2 d2] {
  %0 = index d2
  %1 = const i64 1
  %2 = lt %0, %1
  %3 = load b0[100*d0 + d1]
  %4 = load b1[100*d0 + d1]
  %5 = cast f32 %4
  %6 = where %2, %3, %5
  store b2[154*d0 + 2*d1 + d2] = %6
  %7 = cast bf16 %6
  store b3[154*d0 + 2*d1 + d2] = %7
  %8 = lt %3, %6
  store b4[154*d0 + 2*d1 + d2] = %8
})";

// Squares of one part or of the other.
constexpr const char* kTurnedParts =
    R"(kernel @parts (in %b0: f32, in %b1: f32, out %b2: f32) space [70 d0, 2 d1, 85 d2] {
  %0 = index d1
  %1 = const i64 1
  %2 = lt %0, %1
  %3 = logical_not %2
  %4 = load b0[d0 + 70*d2] if %2 else 0
  %5 = load b1[d0 + 70*d2] if %3 else 3
  %6 = add %4, %5
  store b2[170*d0 + 85*d1 + d2] = %6
})";

// Places in all channels of an image.
constexpr const char* kPlaces =
    R"(kernel @places (in %b0: f32, in %b1: f32, out %b2: f32) space [2 d0, 7 d1, 53 d2] {
  %0 = load b0[53*d0 + d2]
  %1 = abs %0
  %2 = sqrt %1
  %3 = const f32 0
  %4 = mul %2, %3
  %5 = cast i64 %4
  %6 = const i64 31
  %7 = check %5 below %6
  %8 = load b1[217*d0 + d1; %7 * 7]
  %9 = exp %0
  %10 = mul %8, %9
  store b2[371*d0 + 53*d1 + d2] = %10
})";

const Named kCases[] = {
    {"pointwise",
     {R"(kernel @p (in %b0: f32, in %b1: f32, out %b2: f32) space [7 d0, 133 d1] {
  %0 = load b0[133*d0 + d1]
  %1 = load b1[d1]
  %2 = add %0, %1
  %3 = exp %2
  %4 = const f32 1.5
  %5 = mul %3, %4
  store b2[133*d0 + d1] = %5
})",
      {}}},
    {"symbolic",
     {R"(kernel @s (in %b0: f32, out %b1: f32) space [s0 d0, s1 d1] syms [s0, s1] {
  %0 = load b0[s1*d0 + d1]
  %1 = mul %0, %0
  store b1[s1*d0 + d1] = %1
})",
      {5, 77}}},
    {"softmax_long", {softmax_of_rows(5, 1000), {}}},
    {"softmax_short", {softmax_of_rows(9, 37), {}}},
    {"softmax_columns",
     {R"(kernel @softmax (in %b0: f32, out %b1: f32) space [3 d0, 13 d1 reduce, 50 d2] {
  %0 = load b0[650*d0 + 50*d1 + d2]
  %1 = reduce max %0 over d1
  %2 = sub %0, %1
  %3 = exp %2
  %4 = reduce sum %3 over d1
  %5 = div %3, %4
  store b1[650*d0 + 50*d1 + d2] = %5
})",
      {}}},
    {"layer_norm",
     {R"(kernel @ln (in %b0: f32, in %b1: f32, out %b2: f32) space [4 d0, 768 d1 reduce] {
  %0 = load b0[768*d0 + d1]
  %1 = reduce sum %0 over d1
  %2 = const f32 0.0013020833333333333
  %3 = mul %1, %2
  %4 = sub %0, %3
  %5 = mul %4, %4
  %6 = reduce sum %5 over d1
  %7 = mul %6, %2
  %8 = const f32 1.0000000000000001e-05
  %9 = add %7, %8
  %10 = rsqrt %9
  %11 = mul %4, %10
  %12 = load b1[d1]
  %13 = mul %11, %12
  store b2[768*d0 + d1] = %13
})",
      {}}},
    {"row_sum_symbolic",
     {R"(kernel @rs (in %b0: f32, out %b1: f32) space [s0 d0, s1 d1 reduce] syms [s0, s1] {
  %0 = load b0[s1*d0 + d1]
  %1 = reduce sum %0 over d1
  store b1[d0] = %1
})",
      {3, 5001}}},
    {"column_sum",
     {R"(kernel @cs (in %b0: f32, out %b1: f32) space [301 d0 reduce, 219 d1] {
  %0 = load b0[219*d0 + d1]
  %1 = reduce sum %0 over d0
  store b1[d1] = %1
})",
      {}}},
    {"group_norm_sums",
     {R"(kernel @g (in %b0: f32, out %b1: f32, out %b2: f32) space [3 d0, 4 d1 reduce, 49 d2 reduce] {
  %0 = load b0[200*d0 + 50*d1 + d2]
  %1 = mul %0, %0
  %2 = reduce sum %0 over d1, d2
  %3 = reduce max %1 over d1, d2
  store b1[d0] = %2
  store b2[d0] = %3
})",
      {}}},
    {"transpose",
     {R"(kernel @t (in %b0: f32, in %b1: f32, out %b2: f32) space [70 d0, 85 d1] {
  %0 = load b0[70*d1 + d0]
  %1 = load b1[85*d0 + d1]
  %2 = add %0, %1
  store b2[85*d0 + d1] = %2
})",
      {}}},
    {"turned_parts", {kTurnedParts, {}}},
    {"places_in_channels", {kPlaces, {}}},
    {"strided",
     {R"(kernel @st (in %b0: f32, out %b1: f32) space [5 d0, 40 d1] {
  %0 = load b0[120*d0 + 3*d1 + 2]
  %1 = neg %0
  store b1[80*d0 + 2*d1] = %1
})",
      {}}},
    {"pad",
     {R"(kernel @pad (in %b0: f32, out %b1: f32) space [6 d0, 41 d1] {
  %0 = index d1
  %1 = const i64 3
  %2 = ge %0, %1
  %3 = const i64 30
  %4 = lt %0, %3
  %5 = bitwise_and %2, %4
  %6 = load b0[27*d0 + d1 - 3] if %5 else 2.5
  store b1[41*d0 + d1] = %6
})",
      {}}},
    {"embedding",
     {R"(kernel @emb (in %b0: f32, in %b1: i64, out %b2: f32) space [9 d0, 50 d1] {
  %0 = load b1[d0]
  %1 = load b0[d1; %0 * 50]
  store b2[50*d0 + d1] = %1
})",
      {}}},
    {"checked_rows", {kCheckedRows, {}, -4, 4, 8}},
    {"checked_rows_bad", {kCheckedRows, {}, -4, 4, 12, true}},
    {"checked_lanes", {kCheckedLanes, {}, -4, 4, 8}},
    {"checked_lanes_bad", {kCheckedLanes, {}, -4, 4, 9, true}},
    // Lanes behind the end and under a false mask are not looked at.
    {"checked_tail",
     {R"(kernel @tail (in %b0: f32, out %b1: f32) space [53 d0] {
  %0 = index d0
  %1 = const i64 53
  %2 = check %0 below %1
  %3 = load b0[0; %2 * 1]
  store b1[d0] = %3
})",
      {}}},
    {"checked_under_mask",
     {R"(kernel @mask (in %b0: f32, out %b1: f32) space [s0 d0] syms [s0] {
  %0 = index d0
  %1 = index s0 - 10
  %2 = lt %0, %1
  %3 = check %0 below %1 if %2
  %4 = load b0[0; %3 * 1] if %2 else 2
  store b1[d0] = %4
})",
      {53}}},
    {"checked_negative",
     {R"(kernel @negative (in %b0: f32, out %b1: f32) space [53 d0] {
  %0 = index d0 - 1
  %1 = const i64 53
  %2 = check %0 below %1
  %3 = load b0[0; %2 * 1]
  store b1[d0] = %3
})",
      {},
      -4,
      4,
      8,
      true}},
    {"gather",
     {R"(kernel @gather (in %b0: f32, in %b1: i64, out %b2: f32) space [9 d0, 50 d1] {
  %0 = load b1[50*d0 + d1]
  %1 = load b0[8*d0; %0 * 1]
  store b2[50*d0 + d1] = %1
})",
      {}}},
    {"argmax_rows",
     {R"(kernel @am (in %b0: f32, out %b1: i64) space [6 d0, 517 d1 reduce] {
  %0 = load b0[517*d0 + d1]
  %1 = reduce argmax %0 over d1
  store b1[d0] = %1
})",
      {}}},
    {"argmin_columns",
     {R"(kernel @am (in %b0: i32, out %b1: i64) space [37 d0 reduce, 45 d1] {
  %0 = load b0[45*d0 + d1]
  %1 = reduce argmin %0 over d0
  store b1[d1] = %1
})",
      {}}},
    {"bf16",
     {R"(kernel @bf (in %b0: bf16, in %b1: bf16, out %b2: bf16) space [3 d0, 91 d1] {
  %0 = load b0[91*d0 + d1]
  %1 = cast f32 %0
  %2 = load b1[d1]
  %3 = cast f32 %2
  %4 = mul %1, %3
  %5 = tanh %4
  %6 = cast bf16 %5
  store b2[91*d0 + d1] = %6
})",
      {}}},
    {"f16_sum",
     {R"(kernel @h (in %b0: f16, out %b1: f16) space [5 d0, 83 d1 reduce] {
  %0 = load b0[83*d0 + d1]
  %1 = cast f32 %0
  %2 = reduce sum %1 over d1
  %3 = cast f16 %2
  store b1[d0] = %3
})",
      {}}},
    {"f64",
     {R"(kernel @d (in %b0: f64, out %b1: f64) space [3 d0, 65 d1] {
  %0 = load b0[65*d0 + d1]
  %1 = sin %0
  %2 = sigmoid %1
  store b1[65*d0 + d1] = %2
})",
      {}}},
    {"integers",
     {R"(kernel @i (in %b0: i32, in %b1: i32, out %b2: i32, out %b3: b8) space [200 d0] {
  %0 = load b0[d0]
  %1 = load b1[d0]
  %2 = const i32 -5
  %3 = add %0, %2
  %4 = floor_div %3, %1
  %5 = remainder %3, %1
  %6 = mul %4, %5
  %7 = lt %4, %5
  store b2[d0] = %6
  store b3[d0] = %7
})",
      {}}},
    {"bytes",
     {R"(kernel @u (in %b0: u8, in %b1: b8, out %b2: u8, out %b3: b8) space [3 d0 reduce, 77 d1] {
  %0 = load b0[77*d0 + d1]
  %1 = load b1[77*d0 + d1]
  %2 = const u8 3
  %3 = add %0, %2
  %4 = where %1, %3, %0
  %5 = reduce any %1 over d0
  %6 = logical_not %5
  store b2[77*d0 + d1] = %4
  store b3[d1] = %6
})",
      {}}},
    {"two_axes",
     {R"(kernel @two (in %b0: f32, out %b1: f32) space [5 d0, 6 d1 reduce, 40 d2] {
  %0 = load b0[240*d0 + 40*d1 + d2]
  %1 = reduce prod %0 over d1
  store b1[40*d0 + d2] = %1
})",
      {},
      -1.5,
      1.5}},
    {"divided_index",
     {R"(kernel @div (in %b0: f32, out %b1: f32) space [60 d0] {
  %0 = load b0[d0 // 3 + 20*(d0 % 3)]
  store b1[d0] = %0
})",
      {}}},
    {"near_lanes",
     {R"(kernel @near (in %b0: f32, in %b1: i64, in %b2: bf16, out %b3: f32, out %b4: i64) space [5 d0, 77 d1] {
  %0 = load b0[300*d0 + 3*d1 + 77]
  %1 = load b0[300*d0 + 2*d1]
  %2 = load b0[300*d0 - d1 + 76]
  %3 = load b0[300*d0 - 4*d1 + 304]
  %4 = load b1[154*d0 + 2*d1]
  %5 = load b2[231*d0 + 3*d1]
  %6 = cast f32 %5
  %7 = add %0, %1
  %8 = add %2, %3
  %9 = add %7, %8
  %10 = add %6, %9
  store b3[77*d0 + d1] = %10
  store b4[77*d0 + d1] = %4
})",
      {}}},
    {"stored_between_each_other", {kBetween, {}}},
    {"stored_between_three_others",
     {R"(kernel @fours (in %b0: i64, in %b1: f32, in %b2: f32, out %b3: i64, out %b4: f32) space [s0 d0, s1 d1, 4 d2] syms [s0, s1] {
  %0 = load b0[s1*d0 + d1]
  store b3[4*s1*d0 + 4*d1 + d2] = %0
  %1 = load b1[2*s1*d0 + 2*d1]
  %2 = load b2[d2]
  %3 = mul %1, %2
  store b4[4*s1*d0 + 4*d1 + d2] = %3
})",
      {3, 45}}},
    {"near_lanes_sum",
     {R"(kernel @near (in %b0: f32, out %b1: f32) space [6 d0, 500 d1 reduce] {
  %0 = load b0[1000*d0 + 2*d1]
  %1 = reduce sum %0 over d1
  store b1[d0] = %1
})",
      {}}},
    // What stays a number of its half type is not rounded, and a NaN stays one.
    {"chosen_halves",
     {R"(kernel @chosen (in %b0: bf16, in %b1: f16, out %b2: bf16, out %b3: f16) space [3 d0, 91 d1] {
  %0 = load b0[91*d0 + d1]
  %1 = cast f32 %0
  %2 = const f32 0.5
  %3 = sub %1, %1
  %4 = lt %1, %2
  %5 = const f32 nan
  %6 = neg %1
  %7 = maximum %6, %2
  %8 = where %4, %7, %5
  %9 = cast bf16 %8
  store b2[91*d0 + d1] = %9
  %10 = load b1[91*d0 + d1]
  %11 = cast f32 %10
  %12 = abs %11
  %13 = cast f16 %12
  store b3[91*d0 + d1] = %13
})",
      {}}},
    {"full_sum",
     {R"(kernel @full (in %b0: f32, out %b1: f32) space [3000 d0 reduce] {
  %0 = load b0[d0]
  %1 = reduce sum %0 over d0
  store b1[0] = %1
})",
      {}}},
};

class Kernels : public ::testing::TestWithParam<Named> {};
TEST_P(Kernels, EqualTheReference) { check(GetParam().c); }
INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Rows among which each element of a row is read once: lanes are those of the rows, not the few numbers
// beside them.
TEST(Schedule, WeighsAccessesByHowOftenTheyAre) {
  const loops::Kernel k = loops::parse_kernel(
      R"(kernel @rows (in %b0: f32, in %b1: f32, in %b2: f32, out %b3: f32, out %b4: f32) space [64 d0, 500 d1 reduce] {
  %0 = load b0[500*d0 + d1]
  %1 = load b1[d0]
  %2 = load b2[d0]
  %3 = mul %0, %1
  %4 = reduce sum %3 over d1
  %5 = mul %4, %2
  store b3[d0] = %4
  store b4[d0] = %5
})");
  EXPECT_EQ(schedule(normalise(k), widest_here()).vec_dim, 1);
}

// Lanes are rows where these are short, and parts of a row where they are long.
TEST(Schedule, SeeksPlacesInShortRowsSideBySide) {
  auto lanes_along = [](const std::string& row) {
    const loops::Kernel k =
        loops::parse_kernel("kernel @places (in %b0: f32, out %b1: i64) space [5000 d0, " + row +
                            " d1 reduce] {\n  %0 = load b0[" + row +
                            "*d0 + d1]\n  %1 = reduce argmax %0 over d1\n  store b1[d0] = %1\n}");
    return schedule(normalise(k), host_with(Isa::Avx512)).vec_dim;
  };
  EXPECT_EQ(lanes_along("7"), 0);
  EXPECT_EQ(lanes_along("700"), 1);
}

// What lies at every second place is put between what lies at the others, and stored in whole vectors.
TEST(Schedule, StoresNeighboursBetweenEachOther) {
  const LoopSchedule s = schedule(normalise(loops::parse_kernel(kBetween)), host_with(Isa::Avx512));
  EXPECT_EQ(s.vec_dim, 1);
  EXPECT_EQ(s.tile_dim, 2);
  EXPECT_EQ(s.tile, 2);
}

// Loads that one mask hides or shows are turned in registers, so that the store is of whole vectors.
TEST(Schedule, TurnsPartsInRegisters) {
  const LoopSchedule s = schedule(normalise(loops::parse_kernel(kTurnedParts)), host_with(Isa::Avx512));
  EXPECT_EQ(s.vec_dim, 2);
  EXPECT_EQ(s.tile_dim, 0);
  EXPECT_EQ(s.tile, s.lanes);
}

// Where to read is computed once for several channels.
TEST(Schedule, SharesWhatIsDear) {
  const LoopSchedule s = schedule(normalise(loops::parse_kernel(kPlaces)), host_with(Isa::Avx512));
  EXPECT_EQ(s.vec_dim, 2);
  EXPECT_EQ(s.tile_dim, 1);
  EXPECT_EQ(s.tile, 4);
}

// So is a column that all rows read.
TEST(Schedule, SharesColumns) {
  const loops::Kernel k = loops::parse_kernel(
      R"(kernel @outer (in %b0: f32, in %b1: f32, out %b2: f32) space [256 d0, 250 d1] {
  %0 = load b0[99*d0]
  %1 = load b1[99*d1]
  %2 = mul %0, %1
  store b2[250*d0 + d1] = %2
})");
  const LoopSchedule s = schedule(normalise(k), host_with(Isa::Avx512));
  EXPECT_EQ(s.vec_dim, 1);
  EXPECT_EQ(s.tile_dim, 0);
}

TEST(Schedule, MakesAddressesOneByOneWhereElementsMeet) {
  const loops::Kernel k = loops::parse_kernel(
      R"(kernel @count (in %b0: i64, inout %b1: i64) space [5000 d0] {
  %0 = load b0[d0]
  %1 = const i64 100
  %2 = check %0 below %1
  scatter sum b1[0; %2 * 1] = %1
})");
  EXPECT_EQ(schedule(normalise(k), widest_here()).lanes, 1);
}

// The last page in front of memory that nobody may touch, and the first one behind such.
TEST(NearLanes, ReadNothingOutside) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* memory = static_cast<uint8_t*>(
      mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
  mprotect(memory, page, PROT_NONE), mprotect(memory + 2 * page, page, PROT_NONE);
  for (const Target& target : targets()) {
    if (!runs_here(target)) continue;
    for (int64_t step : {2, 3, 4, -1, -2}) {
      constexpr int64_t kCount = 128;
      const int64_t away = step < 0 ? -step : step, first = step < 0 ? away * (kCount - 1) : 0;
      auto module =
          compile({loops::parse_kernel("kernel @near (in %b0: f32, out %b1: f32) space [128 d0] {\n  %0 = "
                                       "load b0[" +
                                       std::to_string(step) + "*d0 + " + std::to_string(first) +
                                       "]\n  store b1[d0] = %0\n}")},
                  target);
      const size_t bytes = static_cast<size_t>(away * (kCount - 1) + 1) * sizeof(float);
      for (uint8_t* at : {memory + page, memory + 2 * page - bytes}) {
        auto* x = reinterpret_cast<float*>(at);
        for (int64_t i = 0; i <= away * (kCount - 1); ++i) x[i] = static_cast<float>(i);
        std::vector<float> y(kCount);
        void* buffers[] = {x, y.data(), nullptr};
        const CompiledKernel& k = module->kernels()[0];
        k.fn(buffers, nullptr, 0, k.work.value());
        for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(y[i], static_cast<float>(first + step * i));
      }
    }
  }
  munmap(memory, 3 * page);
}

TEST(Jit, SharesEqualKernels) {
  loops::Kernel a = loops::parse_kernel(kCases[0].c.text), b = a;
  b.name = "other";
  auto module = compile({a, b});
  ASSERT_EQ(module->kernels().size(), 2u);
  EXPECT_EQ(module->kernels()[0].fn, module->kernels()[1].fn);
  EXPECT_EQ(module->kernels()[1].name, "other");
}

// Sizes that are data are called by the tensor they were found for, which no two layers share.
TEST(Jit, SharesKernelsEqualButForWhatSizesAreCalled) {
  auto kernel = [](const std::string& rows, const std::string& columns) {
    const std::string load = "[" + columns + "*d0 + d1]";
    return loops::parse_kernel("kernel @" + rows + columns + " (in %b0: f32, out %b1: f32) space [" + rows +
                               " d0, " + columns + " d1] syms [" + rows + ", " + columns +
                               "] {\n  %0 = load b0" + load + "\n  %1 = exp %0\n  store b1" + load +
                               " = %1\n}");
  };
  auto module = compile({kernel("u1_0", "u2_0"), kernel("u9_0", "u10_0"), kernel("s1", "u2_0"),
                         kernel("s4", "s0"), kernel("s0", "s3")});
  ASSERT_EQ(module->kernels().size(), 5u);
  EXPECT_EQ(module->kernels()[0].fn, module->kernels()[1].fn);
  EXPECT_NE(module->kernels()[0].fn, module->kernels()[2].fn);
  EXPECT_EQ(module->kernels()[3].fn, module->kernels()[4].fn);
  // How much work there is says each in its own symbols.
  auto symbols_of = [&](size_t k) {
    Syms found;
    collect_symbols(module->kernels()[k].work, &found);
    return found;
  };
  for (Sym s : symbols_of(1)) EXPECT_TRUE(s == data_size(9, 0) || s == data_size(10, 0)) << s.str();
  for (Sym s : symbols_of(3)) EXPECT_TRUE(s == Sym::symbol("s4") || s == Sym::symbol("s0")) << s.str();
  EXPECT_FALSE(symbols_of(1).empty());
}

TEST(Jit, MergesContiguousDimensions) {
  const loops::Kernel k = normalise(loops::parse_kernel(kCases[0].c.text));
  EXPECT_EQ(k.dims.size(), 2u);  // the broadcast load keeps the rows apart
  const loops::Kernel s = normalise(loops::parse_kernel(kCases[1].c.text));
  EXPECT_EQ(s.dims.size(), 1u);
}

}  // namespace
}  // namespace bolt::codegen::cpu::testing

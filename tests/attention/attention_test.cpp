// tests/attention/attention_test.cpp
// attention kernels against the float64 reference: sizes around every tile and block, masks of all shapes,
// strides, grouped heads, epilogues, sizes known at the call, two instruction sets
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "codegen/cpu/attention/schedule.h"
#include "tests/gemm/run_graph.h"

namespace bolt::codegen::cpu::attention {
namespace {

using graph::HostTensor;
using test::Ran;
using test::Sizes;
using testing::Isa;
using testing::target_of;

constexpr double kTolerance = 2e-6;

/// On every instruction set that attention is generated for.
void expect_ours(const std::string& text, const std::vector<Sizes>& sizes,
                 const std::function<void(std::vector<HostTensor>&)>& change = nullptr) {
  for (Isa isa : testing::kVectorIsas) {
    const Target target = target_of(isa);
    const Ran ran = test::run_graph(text, sizes, target, change);
    EXPECT_EQ(ran.contractions, 1) << target.key() << "\n" << ran.plan;
    EXPECT_LE(ran.difference, kTolerance) << target.key() << "\n" << ran.plan;
  }
}

std::string type(const std::string& dtype, const Sizes& sizes) {
  std::string text = dtype + "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

/// A graph of one sdpa.
std::string sdpa(const std::vector<std::string>& types, const std::string& attributes = "") {
  std::string in = "%q: " + types[0] + ", %k: " + types[1] + ", %v: " + types[2], operands = "%q, %k, %v";
  if (types.size() > 3) in += ", %m: " + types[3], operands += ", %m";
  return "graph @f(" + in + ") {\n  %y = sdpa(" + operands + ") {" + attributes + "}\n  return %y\n}";
}

struct Shape {
  int64_t batch, heads, queries, keys, depth, value_depth;
};
std::vector<Sizes> operands(const Shape& s) {
  return {{s.batch, s.heads, s.queries, s.depth},
          {s.batch, s.heads, s.keys, s.depth},
          {s.batch, s.heads, s.keys, s.value_depth}};
}
std::vector<std::string> types(const std::vector<Sizes>& sizes) {
  std::vector<std::string> out;
  for (const Sizes& s : sizes) out.push_back(type("f32", s));
  return out;
}
void check(const Shape& s, const std::string& attributes = "") {
  SCOPED_TRACE(std::to_string(s.queries) + " queries " + std::to_string(s.keys) + " keys depth " +
               std::to_string(s.depth) + " -> " + std::to_string(s.value_depth) + " " + attributes);
  expect_ours(sdpa(types(operands(s)), attributes), operands(s));
}

TEST(Attention, SizesAroundTilesAndBlocks) {
  for (const Shape& s : std::vector<Shape>{{1, 1, 4, 1, 1, 2},
                                           {2, 3, 5, 7, 4, 6},
                                           {1, 2, 16, 16, 16, 16},
                                           {1, 1, 17, 15, 24, 24},
                                           {1, 2, 33, 49, 24, 40},
                                           {1, 1, 49, 197, 32, 48},
                                           {1, 1, 50, 320, 64, 64},
                                           {1, 1, 70, 321, 64, 80},
                                           {2, 1, 31, 700, 40, 33},
                                           {1, 1, 6, 30, 300, 130}})
    check(s);
}

TEST(Attention, CausalRule) {
  for (const Shape& s :
       std::vector<Shape>{{1, 2, 40, 40, 16, 16}, {1, 1, 45, 400, 16, 16}, {1, 1, 400, 380, 16, 16}})
    check(s, "causal=true");
}

TEST(Attention, Scales) {
  for (const char* scale : {"scale=2.5", "scale=-0.5", "scale=0.0"}) check({1, 1, 20, 30, 8, 8}, scale);
}

TEST(Attention, SizesKnownAtTheCall) {
  const std::string text = sdpa({"f32[s0, 2, s1, 24]", "f32[s0, 2, s2, 24]", "f32[s0, 2, s2, 20]"});
  for (auto [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {16, 14}, {37, 300}, {64, 27}})
    expect_ours(text, operands({3, 2, queries, keys, 24, 20}));
}

TEST(Attention, MasksOfSizesKnownAtTheCall) {
  struct Case {
    const char* mask;
    std::function<Sizes(int64_t queries, int64_t keys)> sizes;
  };
  const Case cases[] = {
      {"f32[s0, 1, s1, s2]", [](int64_t q, int64_t k) { return Sizes{3, 1, q, k}; }},
      {"b8[s0, 1, s1, s2]", [](int64_t q, int64_t k) { return Sizes{3, 1, q, k}; }},
      {"f32[s1, s2]{1, s1}", [](int64_t q, int64_t k) { return Sizes{q, k}; }},
      {"b8[s0, 1, 1, s2]", [](int64_t, int64_t k) { return Sizes{3, 1, 1, k}; }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.mask);
    const std::string text = sdpa({"f32[s0, 2, s1, 24]", "f32[s0, 2, s2, 24]", "f32[s0, 2, s2, 20]", c.mask});
    for (auto [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{5, 14}, {37, 300}, {64, 27}}) {
      std::vector<Sizes> sizes = operands({3, 2, queries, keys, 24, 20});
      sizes.push_back(c.sizes(queries, keys));
      expect_ours(text, sizes);
    }
  }
}

TEST(Attention, MasksOfAllShapes) {
  const Shape s{2, 3, 37, 50, 16, 16};
  for (const char* dtype : {"f32", "b8"})
    for (const Sizes& mask : std::vector<Sizes>{
             {2, 3, 37, 50}, {2, 1, 37, 50}, {37, 50}, {2, 1, 1, 50}, {1, 3, 37, 1}, {1, 1, 1, 1}}) {
      std::vector<Sizes> sizes = operands(s);
      std::vector<std::string> t = types(sizes);
      sizes.push_back(mask);
      t.push_back(type(dtype, mask));
      for (const char* attributes : {"", "causal=true"}) expect_ours(sdpa(t, attributes), sizes);
    }
}

TEST(Attention, MaskWithNeighbouringQueries) {
  std::vector<Sizes> sizes = operands({1, 2, 37, 50, 16, 16});
  std::vector<std::string> t = types(sizes);
  sizes.push_back({37, 50});
  for (const char* dtype : {"f32", "b8"}) {
    t.resize(3);
    t.push_back(std::string(dtype) + "[37, 50]{1, 37}");
    expect_ours(sdpa(t), sizes);
  }
}

TEST(Attention, RowsThatSeeNothing) {
  for (int64_t keys : {50, 700}) {
    std::vector<Sizes> sizes = operands({1, 2, 20, keys, 16, 16});
    std::vector<std::string> t = types(sizes);
    sizes.push_back({20, keys});
    t.push_back(type("f32", sizes.back()));
    auto hide = [&](std::vector<HostTensor>& in) {
      for (int64_t j = 0; j < keys; ++j) in[3].cells[static_cast<size_t>(3 * keys + j)].real = -INFINITY;
      // One whole block and more, then something.
      for (int64_t j = 0; j + 2 < keys; ++j) in[3].cells[static_cast<size_t>(5 * keys + j)].real = -INFINITY;
    };
    for (const char* attributes : {"", "empty_rows_nan=true"}) expect_ours(sdpa(t, attributes), sizes, hide);
  }
}

TEST(Attention, TheLeastNumberAsMask) {
  std::vector<Sizes> sizes = operands({1, 1, 20, 40, 16, 16});
  std::vector<std::string> t = types(sizes);
  sizes.push_back({20, 40});
  t.push_back(type("f32", sizes.back()));
  expect_ours(sdpa(t), sizes, [](std::vector<HostTensor>& in) {
    for (size_t i = 0; i < in[3].cells.size(); ++i)
      if (i / 40 == 2 || i % 40 > i / 40) in[3].cells[i].real = std::numeric_limits<float>::lowest();
  });
}

TEST(Attention, NanStaysInItsRow) {
  for (int64_t keys : {30, 700}) {
    const std::vector<Sizes> sizes = operands({1, 1, 20, keys, 16, 16});
    expect_ours(sdpa(types(sizes)), sizes, [](std::vector<HostTensor>& in) { in[0].cells[5].real = NAN; });
  }
}

TEST(Attention, GroupedHeads) {
  const std::vector<Sizes> sizes{{2, 6, 20, 16}, {2, 2, 30, 16}, {2, 2, 30, 16}, {2, 6, 20, 30}};
  std::vector<std::string> t = types(sizes);
  expect_ours(sdpa(t, "enable_gqa=true"), sizes);
}

TEST(Attention, KeysSharedByTheBatch) {
  const std::vector<Sizes> sizes{{3, 2, 20, 16}, {1, 2, 30, 16}, {1, 2, 30, 16}};
  expect_ours(sdpa(types(sizes)), sizes);
}

TEST(Attention, HeadsOfOneProjection) {
  // Three operands from one linear layer's rows, the result put together again: nothing is copied.
  expect_ours(R"(graph @f(%x: f32[2, 21, 96]) {
  %h = reshape(%x) {sizes=[2, 21, 3, 4, 8]}
  %p = permute(%h) {dims=[2, 0, 3, 1, 4]}
  %q = slice(%p) {dim=0, start=0, length=1}
  %k = slice(%p) {dim=0, start=1, length=1}
  %v = slice(%p) {dim=0, start=2, length=1}
  %q1 = reshape(%q) {sizes=[2, 4, 21, 8]}
  %k1 = reshape(%k) {sizes=[2, 4, 21, 8]}
  %v1 = reshape(%v) {sizes=[2, 4, 21, 8]}
  %y = sdpa(%q1, %k1, %v1)
  %t = permute(%y) {dims=[0, 2, 1, 3]}
  %z = reshape(%t) {sizes=[2, 21, 32]}
  %r = relu(%z)
  return %r
})",
              {{2, 21, 96}});
}

TEST(Attention, TransposedQueriesAndKeys) {
  const std::vector<Sizes> sizes{{2, 2, 20, 16}, {2, 2, 30, 16}, {2, 2, 30, 16}};
  expect_ours(
      sdpa({"f32[2, 2, 20, 16]{640, 320, 1, 20}", "f32[2, 2, 30, 16]{960, 480, 1, 30}", "f32[2, 2, 30, 16]"}),
      sizes);
}

/// With pairs in vectors, and in matrix registers.
std::vector<Target> targets_of_pairs() {
  std::vector<Target> all{target_of(Isa::Avx512), target_of(Isa::Amx)};
  for (Target& target : all) target.avx512_bf16 = true;
  return all;
}

/// Sums of pairs are exact to float32, the result is rounded to bfloat16; with matrix registers the weights
/// are, too.
void expect_ours_in_pairs(const std::string& text, const std::vector<Sizes>& sizes) {
  for (const Target& target : targets_of_pairs()) {
    const loops::Plan plan = loops::plan(graph::parse(text), options_that_generate(target));
    EXPECT_EQ(plan.steps.at(0).kind, loops::StepKind::Contraction) << text;
    const Ran ran = test::run_graph(text, sizes, target);
    const double weights = target.isa == Isa::Amx ? 1.0 / 512 : 0;
    EXPECT_LE(ran.difference, 1.0 / 256 + weights) << target.key() << "\n" << ran.plan;
  }
}

TEST(Attention, Bfloat16) {
  // Steps of 12, 16 and 10 words; a last block of fewer keys than a register has rows.
  for (const Shape& s : std::vector<Shape>{{2, 3, 37, 50, 24, 40},
                                           {1, 1, 20, 700, 32, 33},
                                           {1, 1, 12, 16, 64, 16},
                                           {1, 2, 70, 325, 64, 64},
                                           {1, 1, 33, 645, 80, 80}})
    for (const char* mask : {"", "b8", "bf16"})
      for (const char* attributes : {"", "causal=true"}) {
        std::vector<Sizes> sizes = operands(s);
        std::vector<std::string> t;
        for (const Sizes& x : sizes) t.push_back(type("bf16", x));
        if (*mask) {
          sizes.push_back({s.queries, s.keys});
          t.push_back(type(mask, sizes.back()));
        }
        expect_ours_in_pairs(sdpa(t, attributes), sizes);
      }
}

TEST(Attention, Bfloat16OfSizesKnownAtTheCall) {
  const std::string text = sdpa({"bf16[s0, 2, s1, 24]", "bf16[s0, 2, s2, 24]", "bf16[s0, 2, s2, 20]"});
  for (auto [queries, keys] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 15}, {16, 16}, {37, 300}, {64, 27}, {40, 131}})
    expect_ours_in_pairs(text, operands({3, 2, queries, keys, 24, 20}));
}

TEST(Attention, MatrixRegistersAreTakenWhereWordsFillThem) {
  auto step = [](int64_t keys, int64_t depth) {
    AttentionKernel a;
    a.queries = 32;
    a.keys = keys;
    a.depth = depth;
    a.value_depth = 64;
    a.q = a.k = {0, depth, 1};
    a.v = {0, 64, 1};
    a.pairs = true;
    return choose_schedule(a, gemm::machine_facts(target_of(Isa::Amx))).matrix_step;
  };
  EXPECT_EQ(step(128, 32), 16);
  EXPECT_EQ(step(128, 40), 10);
  EXPECT_EQ(step(128, 31), 0);
  EXPECT_EQ(step(128, 4), 4);
  EXPECT_EQ(step(15, 32), 0);
}

TEST(Attention, WhatTheLibraryKeeps) {
  auto ours = [](const std::vector<std::string>& t, Isa isa = Isa::Avx512) {
    const loops::Plan plan = loops::plan(graph::parse(sdpa(t)), options_that_generate(target_of(isa)));
    return plan.steps.at(0).kind == loops::StepKind::Contraction;
  };
  const std::string whole = "f32[1, 1, 20, 16]";
  EXPECT_TRUE(ours({whole, whole, whole}));
  EXPECT_FALSE(ours({whole, whole, whole}, Isa::Scalar));
  EXPECT_FALSE(ours({"f32[1, 1, 1, 16]", whole, whole}));
  EXPECT_FALSE(ours({whole, whole, "f32[1, 1, 20, 16]{320, 320, 1, 20}"}));
  for (const char* dtype : {"f64", "bf16"}) {
    const std::string other = type(dtype, {1, 1, 20, 16});
    EXPECT_FALSE(ours({other, other, other})) << dtype;
  }
}

}  // namespace
}  // namespace bolt::codegen::cpu::attention

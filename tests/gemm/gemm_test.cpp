// tests/gemm/gemm_test.cpp
// matrix product kernels against float64: odd sizes, all tails, epilogues, batches, transposes, three
// instruction sets
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/gemm/harness.h"

namespace bolt::codegen::cpu::gemm::test {
namespace {

struct Sizes {
  int64_t m, n, k;
};

struct GemmCase {
  GemmKernel kernel;
  SimpleEpilogue epilogue;
  Isa isa = Isa::Scalar;
  int64_t m = 0;       // of this run
  int64_t ranges = 1;  // the work is run in so many pieces
  const TileSchedule* schedule = nullptr;
};

int64_t batch_offset(const GemmKernel& kernel, int64_t item, int64_t BatchDim::* stride) {
  int64_t offset = 0;
  for (auto dim = kernel.batch.rbegin(); dim != kernel.batch.rend(); ++dim) {
    offset += item % dim->size * ((*dim).*stride);
    item /= dim->size;
  }
  return offset;
}

size_t extent(const GemmKernel& kernel, const Matrix& m, int64_t rows, int64_t cols,
              int64_t BatchDim::* stride) {
  int64_t last = (rows - 1) * m.row_stride + (cols - 1) * m.col_stride;
  for (const BatchDim& dim : kernel.batch) last += (dim.size - 1) * (dim.*stride);
  return static_cast<size_t>(last + 1);
}

void check(GemmCase c) {
  GemmKernel& kernel = c.kernel;
  SCOPED_TRACE(print(kernel) + " m=" + std::to_string(c.m) + " isa " +
               std::to_string(static_cast<int>(c.isa)));
  kernel.name = "product";
  Matrix b_plain = kernel.b;
  if (kernel.b.packed) b_plain = {1, kernel.n, 1, false};
  const int64_t items = items_of(kernel);
  const auto a = random_floats(extent(kernel, kernel.a, c.m, kernel.k, &BatchDim::a_stride), 1);
  auto b = random_floats(extent(kernel, b_plain, kernel.k, kernel.n, &BatchDim::b_stride), 2);
  const size_t result_size = static_cast<size_t>(items * c.m * kernel.n);
  const auto bias = random_floats(static_cast<size_t>(kernel.n), 3);
  const auto residual = random_floats(result_size, 4);
  std::vector<float> result(result_size + 2 * kGuard, kUntouched);

  Compiled compiled = compile_gemm(kernel, c.epilogue, c.isa, c.schedule);
  if (!compiled.module) return;
  std::vector<float> b_used = b;
  if (kernel.b.packed) {
    b_used = pack(compiled, b.data(), {1, kernel.n});
  }
  void* buffers[] = {const_cast<float*>(a.data()), b_used.data(), result.data() + kGuard,
                     const_cast<float*>(bias.data()), const_cast<float*>(residual.data())};
  const int64_t tasks = compiled.tasks(c.m);
  for (int64_t r = 0; r < c.ranges; ++r) {
    compiled.run(buffers, &c.m, tasks * r / c.ranges, tasks * (r + 1) / c.ranges);
  }

  double worst = 0;
  for (int64_t item = 0; item < items; ++item) {
    const float* a_item = a.data() + batch_offset(kernel, item, &BatchDim::a_stride);
    const float* b_item = b.data() + batch_offset(kernel, item, &BatchDim::b_stride);
    for (int64_t row = 0; row < c.m; ++row) {
      for (int64_t col = 0; col < kernel.n; ++col) {
        double sum = 0;
        for (int64_t k = 0; k < kernel.k; ++k) {
          sum += double{a_item[row * kernel.a.row_stride + k * kernel.a.col_stride]} *
                 b_item[k * b_plain.row_stride + col * b_plain.col_stride];
        }
        const size_t at = static_cast<size_t>((item * c.m + row) * kernel.n + col);
        const double expected = apply(c.epilogue, sum, bias[static_cast<size_t>(col)], residual[at]);
        worst = std::max(worst, std::abs(result[kGuard + at] - expected));
      }
    }
  }
  EXPECT_LE(worst, 2e-7 * static_cast<double>(kernel.k) + 2e-6) << print(compiled.schedule());
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(result[i], kUntouched);
    EXPECT_EQ(result[result.size() - 1 - i], kUntouched);
  }
}

GemmCase packed_case(Sizes s, SimpleEpilogue e, Isa isa) {
  GemmCase c;
  c.kernel.m = s.m;
  c.kernel.n = s.n;
  c.kernel.k = s.k;
  c.kernel.a = {0, s.k, 1, false};
  c.kernel.b = {1, 0, 0, true};
  c.epilogue = e;
  c.isa = isa;
  c.m = s.m;
  return c;
}

constexpr Sizes kOdd[] = {{1, 1, 1},     {1, 5, 3},     {2, 16, 7},    {3, 17, 64},  {5, 31, 33},
                          {7, 32, 1},    {13, 33, 100}, {14, 48, 65},  {15, 64, 40}, {29, 65, 17},
                          {49, 160, 96}, {61, 24, 144}, {130, 100, 31}};

TEST(Gemm, PackedOddSizes) {
  for (Isa isa : kIsas) {
    for (Sizes s : kOdd) check(packed_case(s, {}, isa));
  }
}

TEST(Gemm, Epilogues) {
  for (Isa isa : kIsas) {
    for (Sizes s : {Sizes{15, 33, 20}, Sizes{49, 96, 32}}) {
      check(packed_case(s, {true, false, true, false}, isa));
      check(packed_case(s, {true, true, false, false}, isa));
      check(packed_case(s, {false, true, true, true}, isa));
    }
  }
}

TEST(Gemm, SymbolicRowsServeEveryNumber) {
  for (Isa isa : kIsas) {
    for (int64_t m : {1, 2, 3, 7, 8, 13, 14, 15, 27, 31, 100}) {
      GemmCase c = packed_case({m, 40, 24}, {true, false, false, false}, isa);
      c.kernel.m = Sym::symbol("s0");
      check(c);
    }
  }
}

TEST(Gemm, RangesOfWorkAddUp) {
  TileSchedule s;
  s.rows = 6;
  s.vectors = 2;
  s.row_block = 2;
  s.col_block = 1;
  for (bool rows_inside : {false, true}) {
    s.rows_inside = rows_inside;
    for (Isa isa : kIsas) {
      s.lanes = lanes_of(isa);
      GemmCase c = packed_case({77, 100, 30}, {true, true, true, false}, isa);
      c.schedule = &s;
      for (int64_t ranges : {1, 2, 5}) {
        c.ranges = ranges;
        check(c);
      }
      c.kernel.m = Sym::symbol("s0");
      check(c);
    }
  }
}

TEST(Gemm, EveryTileHeight) {
  for (Isa isa : kIsas) {
    for (int rows = 1; rows <= 28; ++rows) {
      TileSchedule s;
      s.lanes = lanes_of(isa);
      s.rows = rows;
      s.vectors = rows <= 14 ? 2 : 1;
      GemmCase c = packed_case({2 * rows + 1, 50, 9}, {}, isa);
      c.schedule = &s;
      check(c);
    }
  }
}

TEST(Gemm, RowsOfAFurtherApart) {
  for (Isa isa : kIsas) {
    GemmCase c = packed_case({20, 48, 30}, {}, isa);
    c.kernel.a.row_stride = 77;
    check(c);
  }
}

// Attention: q [b, s, h, d] x keys transposed, weights x values, heads side by side in memory.
TEST(Gemm, BatchedTransposed) {
  const int64_t batch = 2, heads = 3, length = 37, dim = 16;
  for (Isa isa : kIsas) {
    GemmCase scores;
    scores.kernel.batch = {{batch, length * heads * dim, length * heads * dim}, {heads, dim, dim}};
    scores.kernel.m = length;
    scores.kernel.n = length;
    scores.kernel.k = dim;
    scores.kernel.a = {0, heads * dim, 1, false};
    scores.kernel.b = {1, 1, heads * dim, false};
    scores.isa = isa;
    scores.m = length;
    check(scores);

    GemmCase values = scores;
    values.kernel.batch = {{batch, heads * length * length, length * heads * dim},
                           {heads, length * length, dim}};
    values.kernel.n = dim;
    values.kernel.k = length;
    values.kernel.a = {0, length, 1, false};
    values.kernel.b = {1, heads * dim, 1, false};
    check(values);
  }
}

TEST(Gemm, TransposedWholePanels) {
  for (Isa isa : kIsas) {
    GemmCase c = packed_case({33, 64, 35}, {true, false, false, false}, isa);
    c.kernel.b = {1, 1, 35, false};
    check(c);
  }
}

TEST(Gemm, TransposedRows) {
  for (Isa isa : kIsas) {
    GemmCase c = packed_case({33, 40, 21}, {}, isa);
    c.kernel.a = {0, 1, 33, false};
    check(c);
  }
}

TEST(Gemm, DescriptionPrints) {
  GemmKernel kernel = packed_case({49, 160, 96}, {}, Isa::Avx512).kernel;
  kernel.name = "linear_0";
  EXPECT_EQ(print(kernel), "gemm @linear_0 [49 x 160 x 96] a=b0[96, 1] b=b1 packed");
}

TEST(Schedule, RowsAreCutEvenly) {
  const RowCut cut = cut_rows(49, 14);
  EXPECT_EQ(cut.tiles, 4);
  EXPECT_EQ(cut.height, 12);
  EXPECT_EQ(cut.longer, 1);
}

}  // namespace
}  // namespace bolt::codegen::cpu::gemm::test

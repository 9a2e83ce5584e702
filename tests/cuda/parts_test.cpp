// tests/cuda/parts_test.cpp
// Kernels that are launched in parts: the parts, run one after another by the reference executor, give what
// the whole kernel gives (codegen/cuda/parts.h). The kernels are those of tests/cuda/kernels, which a GPU
// runs, too.
#include "codegen/cuda/parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "loops/normalise.h"
#include "tests/reference/graph.h"
#include "tests/reference/kernel.h"

namespace bolt::codegen::cuda {
namespace {

using loops::Kernel;

constexpr int64_t kElements = 1 << 21;

std::vector<Kernel> read_kernels(const std::string& file) {
  std::ifstream in(std::string(BOLT_TEST_DIR) + "/cuda/kernels/" + file);
  const std::string text = "\n" + std::string(std::istreambuf_iterator<char>(in), {});
  std::vector<Kernel> kernels;
  for (size_t at = text.find("\nkernel @"); at != text.npos; at = text.find("\nkernel @", at + 1))
    kernels.push_back(loops::parse_kernel(std::string_view(text).substr(at, text.find("\n}", at) + 2 - at)));
  EXPECT_FALSE(kernels.empty());
  return kernels;
}

using Bytes = std::vector<std::vector<char>>;

Bytes random_buffers(const Kernel& k) {
  std::mt19937 rng(5);
  Bytes out;
  for (const loops::Buffer& b : k.buffers) {
    graph::HostTensor t = graph::make_tensor(b.dtype, {kElements});
    for (auto& cell : t.cells) {
      if (t.is_real())
        cell.real = static_cast<double>(rng() % 256) / 64 - 2;
      else
        cell.whole = static_cast<int64_t>(rng() % (b.dtype == DType::Bool ? 2 : 100));
    }
    out.emplace_back(static_cast<size_t>(kElements * dtype_bytes(b.dtype)));
    graph::store_tensor(t, {1}, out.back().data());
  }
  return out;
}

/// Parts one after another, each block of the chunk-dependent sizes by its own: the reference executor wants
/// constant sizes, so a part whose dimension depends on a chunk's number runs once for each chunk.
void run_part(const Part& part, std::vector<void*> at, const int64_t* symbols) {
  const Kernel& k = part.kernel;
  const bool uneven = std::any_of(k.dims.begin(), k.dims.end(), [](const loops::Dim& d) {
    return loops::mentions(d.size, Kernel::dim(0));
  });
  int64_t report = 0;
  at.push_back(&report);
  if (!uneven) return loops::run_reference(k, at.data(), symbols);
  const int64_t chunks = k.dims[0].size.value();
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    Kernel one = k;
    auto here = [&](Sym s) {
      return substitute(s, [&](Sym x) { return x == Kernel::dim(0) ? Kernel::dim(0) + Sym(chunk) : x; });
    };
    one.dims[0].size = 1;
    for (loops::Dim& d : one.dims)
      d.size = substitute(d.size, [&](Sym x) { return x == Kernel::dim(0) ? Sym(chunk) : x; });
    for (loops::Expr& e : one.exprs) e.index = here(e.index);
    for (loops::Store& s : one.stores) s.index = here(s.index);
    loops::run_reference(one, at.data(), symbols);
  }
}

void expect_same(const Kernel& kernel) {
  SCOPED_TRACE(kernel.name);
  const Kernel k = loops::normalise(kernel);
  ASSERT_EQ(refusal(k), "");
  const std::vector<int64_t> symbols(k.symbols.size(), 36);
  Bytes whole = random_buffers(k), split = whole;
  std::vector<void*> at;
  for (auto& b : whole) at.push_back(b.data());
  loops::run_reference(k, at.data(), symbols.data());

  const Parts all = parts(k);
  std::vector<char> scratch(static_cast<size_t>(all.scratch_bytes.value()) + 1, 0x7b);
  for (const Part& part : all.list) {
    std::vector<void*> of_part;
    for (int b : part.buffers) {
      const auto i = static_cast<size_t>(b);
      of_part.push_back(i < split.size() ? split[i].data()
                                         : scratch.data() + all.scratch[i - split.size()].offset.value());
    }
    run_part(part, of_part, symbols.data());
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    const DType t = k.buffers[i].dtype;
    auto tensor = [&](const Bytes& b) { return graph::load_tensor(t, {kElements}, {1}, b[i].data()); };
    EXPECT_LE(graph::difference(tensor(split), tensor(whole)), 1e-5) << "b" << i;
  }
}

TEST(CudaParts, GiveWhatTheWholeGives) {
  for (const char* file :
       {"rows_and_columns.ir", "few_rows.ir", "side_by_side.ir", "turned.ir", "columns.ir"})
    for (const Kernel& k : read_kernels(file)) expect_same(k);
}

TEST(CudaParts, AreMoreThanOneOnlyWhereThatPays) {
  auto count = [](const char* text) {
    return parts(loops::normalise(loops::parse_kernel(text))).list.size();
  };
  EXPECT_EQ(count("kernel @rows (in %b0: f32, out %b1: f32) space [4096 d0, 4096 d1 reduce] {\n"
                  "  %0 = load b0[4096*d0 + d1]\n  %1 = reduce sum %0 over d1\n  store b1[d0] = %1\n}"),
            1u);
  EXPECT_EQ(count("kernel @small (in %b0: f32, out %b1: f32) space [1000 d0 reduce] {\n"
                  "  %0 = load b0[d0]\n  %1 = reduce sum %0 over d0\n  store b1[0] = %1\n}"),
            1u);
  EXPECT_EQ(count("kernel @all (in %b0: f32, out %b1: f32) space [1000000 d0 reduce] {\n"
                  "  %0 = load b0[d0]\n  %1 = reduce sum %0 over d0\n  store b1[0] = %1\n}"),
            2u);
  EXPECT_EQ(count("kernel @open (in %b0: f32, out %b1: f32) space [s0 d0 reduce, 8 d1] syms [s0] {\n"
                  "  %0 = load b0[8*d0 + d1]\n  %1 = reduce sum %0 over d0\n  store b1[d1] = %1\n}"),
            2u);
}

// Who reads a number for each element of a column reads columns all the same, and what is stored for each of
// these is so stored while they are summed, whatever the sums are put together with behind that.
TEST(CudaParts, ReadColumnsOnce) {
  const std::vector<Kernel> kernels = read_kernels("columns.ir");
  auto parts_of = [&](size_t i) { return parts(loops::normalise(kernels.at(i))); };
  for (size_t i : {0u, 1u}) {
    SCOPED_TRACE(kernels[i].name);
    const Parts all = parts_of(i);
    ASSERT_EQ(all.list.size(), 2u);
    EXPECT_EQ(schedule(all.list[0].kernel).way, Mapping::Columns);
    EXPECT_EQ(schedule(all.list[0].kernel).vector, 8);
    for (const loops::Expr& e : all.list[1].kernel.exprs)
      if (e.kind == loops::ExprKind::Load) {
        EXPECT_GE(all.list[1].buffers[static_cast<size_t>(e.buffer)],
                  static_cast<int>(kernels[i].buffers.size()));
      }
  }
  EXPECT_EQ(parts_of(2).list.size(), 3u);  // its elements wait for the sums
  const Parts beside_numbers = parts_of(4);
  ASSERT_EQ(beside_numbers.list.size(), 2u);
  for (int image : {0, 1, 3}) EXPECT_EQ(std::ranges::count(beside_numbers.list[1].buffers, image), 0);
}

// The last chunks of a row are shorter, or empty: a thread that summed several of them at once would read
// beyond their ends. They are rows of memory whatever the first one's number says of their length.
TEST(CudaParts, ReadEachChunkToItsEnd) {
  for (const char* space :
       {"[300000 d0 reduce]", "[64*s0 d0 reduce] syms [s0]", "[s0 d0 reduce] syms [s0]"}) {
    SCOPED_TRACE(space);
    const Parts all = parts(loops::normalise(
        loops::parse_kernel("kernel @sum (in %b0: f32, out %b1: f32) space " + std::string(space) +
                            " {\n  %0 = load b0[d0]\n  %1 = reduce sum %0 over d0\n  store b1[0] = %1\n}")));
    ASSERT_EQ(all.list.size(), 2u);
    EXPECT_EQ(schedule(all.list[0].kernel).way, Mapping::Block);
  }
}

// The rows of a chunk are those of all reduced dimensions: 16 of 512, 8 times.
TEST(CudaParts, KeepTheDeviceBusyWhereSeveralDimensionsAreReduced) {
  const Parts all = parts(loops::normalise(loops::parse_kernel(
      "kernel @turned (in %b0: bf16, out %b1: f32) space [8 d0 reduce, 512 d1 reduce, 36 d2, 64 d3] {\n"
      "  %0 = load b0[1179648*d0 + 64*d1 + 32768*d2 + d3]\n  %1 = cast f32 %0\n"
      "  %2 = reduce sum %1 over d0, d1\n  store b1[64*d2 + d3] = %2\n}")));
  ASSERT_EQ(all.list.size(), 2u);
  EXPECT_GE(schedule(all.list[0].kernel).blocks.value(), 128);
}

// Rows and columns of images that something is read at, so that they are no one dimension: no dimension alone
// has as many indices as there are to be chunks.
TEST(CudaParts, CutSeveralDimensionsWhereOneIsTooShort) {
  const Kernel kernel = read_kernels("columns.ir").at(5);
  const Parts all = parts(loops::normalise(kernel));
  ASSERT_EQ(all.list.size(), 2u);
  EXPECT_GE(schedule(all.list[0].kernel).blocks.value(), 16);
}

// By itself a sum of planes has a block for each; with what is stored for each pixel it has two in all.
TEST(CudaParts, AreAskedOfTheWholeKernel) {
  const Kernel kernel = read_kernels("columns.ir").at(7);
  const Parts all = parts(loops::normalise(kernel));
  ASSERT_EQ(all.list.size(), 2u);
  EXPECT_GE(schedule(all.list[0].kernel).blocks.value(), 128);
}

// A value that is stored and made of three others is read by the parts behind the first one.
TEST(CudaParts, ReadWhatAnEarlierOneStored) {
  const Kernel kernel = read_kernels("rows_and_columns.ir").back();
  const Parts all = parts(loops::normalise(kernel));
  ASSERT_EQ(all.list.size(), 5u);
  for (size_t i : {2u, 4u}) {
    EXPECT_EQ(std::ranges::count(all.list[i].buffers, 3), 1) << i;
    for (int operand : {0, 1, 2}) EXPECT_EQ(std::ranges::count(all.list[i].buffers, operand), 0) << i;
  }
}

// Fewer rows than a chunk is rounded up to: then it is all of them.
TEST(CudaParts, AChunkIsNoLongerThanItsDimension) {
  const Kernel kernel = read_kernels("columns.ir").at(6);
  const Parts all = parts(loops::normalise(kernel));
  ASSERT_EQ(all.list.size(), 2u);
  for (const loops::Dim& d : all.list[0].kernel.dims) EXPECT_TRUE(d.size.is_const());
}

}  // namespace
}  // namespace bolt::codegen::cuda

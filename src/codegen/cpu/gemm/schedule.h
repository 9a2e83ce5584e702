// codegen/cpu/gemm/schedule.h
// contraction + machine -> sizes of tiles and blocks, as data
//
// The cost model counts cycles of the innermost loop: rows x vectors multiply-adds, mostly two a cycle, the
// loads of rows + vectors and the lines fetched ahead at less than two a cycle, enough sums in flight to
// hide the multiply-add's latency, a small price for the bytes of both operands, and a fixed one for
// entering and leaving a tile. It tries every tile that fits the register file and takes the cheapest for
// the whole matrix, tails included: 49 rows are better cut into 13 + 12 + 12 + 12 than into 14 + 14 + 14 +
// 7.
//
// Blocks: the panel of B and the rows of A that one task works on stay in the L2 cache; when all of B does,
// each tile of rows meets every panel at once, so that A is read and C written in one stream.
//
// Weights that are halves are made float32 by the tile that loads them where there are few rows, which wait
// for memory. Many rows would do that again in each tile: a task makes its panels float32 first, those that
// its loops go over again.
//
// With matrix registers (amx_tile.h) pairs have a second way, which is taken where it costs less: a step of
// up to 16 words for 16 columns and up to 16 rows takes 16 cycles however few the words and rows are, and
// enters no tile cheaply.
#pragma once

#include <string>

#include "codegen/cpu/gemm/kernels.h"
#include "codegen/cpu/jit.h"
#include "support/export.h"

namespace bolt::codegen::cpu::gemm {

/// What the cost model knows of a machine.
struct MachineFacts {
  int lanes = 16;      ///< floats in a vector
  int registers = 32;  ///< vector registers
  bool matrix_registers = false;
  double pair_multiplies = 2;  ///< a cycle, of vectors of pairs
  int64_t l1_bytes = 32 << 10;
  int64_t l2_bytes = 1 << 20;
};

BOLT_API MachineFacts machine_facts(const Target& target);

/// `length` rows cut into tiles of nearly equal height: `longer` tiles of `height` + 1 rows, then `tiles` -
/// `longer` of `height`.
struct RowCut {
  int64_t tiles = 0;
  int64_t height = 0;
  int64_t longer = 0;
};
BOLT_API RowCut cut_rows(int64_t length, int64_t most);

struct TileSchedule {
  int lanes = 16;
  int vectors = 2;           ///< of a panel of B; its width is vectors * lanes
  int rows = 14;             ///< most rows of a tile
  int bands = 1;             ///< convolution: output rows in a tile (> 1 where they are short)
  int64_t row_block = 1;     ///< tiles (convolution: bands of tiles) of a task
  int64_t col_block = 1;     ///< panels of a task
  bool rows_inside = false;  ///< in a task: for panel, for tile; else: for tile, for panel
  int prefetch = 0;          ///< bytes B is fetched ahead
  int64_t widened = 0;       ///< panels of halves that are made float32 at a time; 0: each tile does
  int matrix_step = 0;       ///< words of K that a step of matrix registers multiplies; 0: vector registers
  int64_t k_block = 0;  ///< words of K after which tiles of matrix registers go on to the next rows; 0: all

  int width() const { return lanes * vectors; }
};

/// Rows, and columns, of a matrix register; it holds as many words of K.
constexpr int kMatrixRows = 16;
/// Words of K in a step, of so many in a row: as many as a matrix register has, and no rest.
int matrix_step(int64_t words);

BOLT_API std::string print(const TileSchedule& schedule);

/// `m_hint` stands for a symbolic m.
BOLT_API TileSchedule schedule_gemm(const GemmKernel& kernel, const MachineFacts& machine, int64_t m_hint);
BOLT_API TileSchedule schedule_conv(const ConvKernel& kernel, const MachineFacts& machine);

/// Work items of a kernel, and the fewest that are worth a thread.
struct WorkItems {
  Sym work = 1;
  int64_t grain = 1;
};
BOLT_API WorkItems launch_gemm(const GemmKernel& kernel, const TileSchedule& schedule);
BOLT_API WorkItems launch_conv(const ConvKernel& kernel, const TileSchedule& schedule);
BOLT_API WorkItems launch_depthwise(const ConvKernel& kernel);

/// Tiles that `rows` rows of a product are cut into.
Sym count_tiles(Sym rows, int most);

/// Convolution: columns of output a depthwise tile computes.
BOLT_API int depthwise_columns(const ConvKernel& kernel);

/// Floats a convolution's task copies its (padded, channels-last) input rows into; 0: it is read in place.
BOLT_API int64_t strip_floats(const ConvKernel& kernel, const TileSchedule& schedule);
BOLT_API bool reads_in_place(const ConvKernel& kernel);

}  // namespace bolt::codegen::cpu::gemm

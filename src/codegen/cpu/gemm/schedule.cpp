// codegen/cpu/gemm/schedule.cpp
// cost model of register tiles, choice of blocks; see schedule.h
#include "codegen/cpu/gemm/schedule.h"

#include <algorithm>
#include <sstream>

#include "codegen/cpu/gemm/pack.h"
#include "support/error.h"

namespace bolt::codegen::cpu::gemm {
namespace {

constexpr double kTileOverhead = 24;      // cycles to enter and leave a tile: call, sums out, first loads
constexpr double kSumsInFlight = 11;      // that keep two multiply-adds a cycle busy, with some slack
constexpr double kLoadsPerCycle = 1.67;   // of the two that machines promise: loads meet in banks and lines
constexpr double kBytesPerCycle = 256;    // price of a tile's operands: what tells equally busy tiles apart
constexpr int64_t kMinTasks = 16;         // enough for eight threads to share unevenly
constexpr double kMinTaskCycles = 30000;  // about 10 us
constexpr int64_t kScratchBytes = 512 << 10;  // of stack that a task may fill with copied operands
constexpr int64_t kWidenedBytes = 1 << 20;    // of stack for panels of halves made float32
constexpr int64_t kRowsToWidenFor = 24;       // at least
constexpr int kPrefetchBytes = 4096;
constexpr int kLineBytes = 64;
constexpr double kMatrixCycles = 16;  // of a step: two matrix registers multiplied onto a third
constexpr double kMatrixOverhead =
    100;  // to enter and leave a tile: sums go to their epilogue through memory

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool fits(int rows, int vectors, const MachineFacts& machine) {
  return rows * vectors + vectors + 1 <= machine.registers;
}

/// What a tile multiplies, by what it loads of B.
struct FactorTypes {
  bool pairs = false;
  bool halves = false;  ///< made float32 by the tile
};

double tile_cycles(int64_t rows, int vectors, int64_t k, FactorTypes of, const MachineFacts& machine) {
  const double sums = static_cast<double>(rows * vectors);
  const int vector_bytes = machine.lanes * (of.halves ? 2 : 4);
  // A shift or a conversion, which takes the place of a multiply-add, and an instruction beside it.
  const double widen = of.halves ? vectors : 0;
  const int prefetches = std::max(1, vectors * vector_bytes / kLineBytes);
  const double multiply =
      std::max(std::max(sums + widen, kSumsInFlight) / 2, of.pairs ? sums / machine.pair_multiplies : 0);
  const double load = static_cast<double>(rows + vectors + prefetches) / kLoadsPerCycle;
  const double issue = (sums + 2 * widen + static_cast<double>(rows + vectors) + 4) / 6;
  const double traffic = static_cast<double>(rows * 4 + vectors * vector_bytes) / kBytesPerCycle;
  return static_cast<double>(k) * (std::max({multiply, load, issue}) + traffic) + kTileOverhead + 2 * sums;
}

double column_cycles(const RowCut& cut, int vectors, int64_t k, FactorTypes of, const MachineFacts& machine) {
  return static_cast<double>(cut.longer) * tile_cycles(cut.height + 1, vectors, k, of, machine) +
         static_cast<double>(cut.tiles - cut.longer) * tile_cycles(cut.height, vectors, k, of, machine);
}

/// Of one panel over `rows` rows, two matrix registers high at most.
double matrix_cycles(int64_t rows, int vectors, int64_t k, int step) {
  const auto registers = static_cast<double>(ceil_div(rows, kMatrixRows));
  const auto tiles = static_cast<double>(ceil_div(rows, 2 * kMatrixRows));
  const double multiply = registers * vectors * kMatrixCycles * static_cast<double>(k / step);
  return multiply + tiles * kMatrixOverhead + 3 * static_cast<double>(rows * vectors);
}

/// Takes matrix registers where they cost less than `cycles`; `panel_cycles(vectors, step)` is their price of
/// one panel over all rows, `words` how many of K follow each other in memory.
template <class Cost>
bool take_matrix_registers(TileSchedule& s, int64_t n, int64_t words, const MachineFacts& machine,
                           const Cost& panel_cycles, double* cycles) {
  const int vectors = n > kMatrixRows ? 2 : 1, step = matrix_step(words);
  if (!machine.matrix_registers) return false;
  const double total =
      static_cast<double>(ceil_div(n, int64_t{vectors} * kMatrixRows)) * panel_cycles(vectors, step);
  if (total >= *cycles) return false;
  *cycles = total;
  s.vectors = vectors;
  s.rows = 2 * kMatrixRows;
  s.matrix_step = step;
  return true;
}

// A panel of B against a tile of rows leaves the L1 cache long before K ends. With a long K it is worth to
// keep sums in memory and to have a block of the panel meet all rows of the task first.
constexpr int64_t kUnbrokenWords = 1536;
constexpr int64_t kBlockWords = 256;

/// The cheapest tile; `columns_cost(rows, vectors)` is the price of one panel over all rows.
template <class Cost>
TileSchedule best_tile(int64_t n, const MachineFacts& machine, const Cost& panel_cycles, double* total) {
  TileSchedule best;
  best.lanes = machine.lanes;
  *total = -1;
  for (int vectors = 1; vectors <= 6; ++vectors) {
    const int64_t panels = ceil_div(n, int64_t{vectors} * machine.lanes);
    if (vectors > 1 && int64_t{vectors - 1} * machine.lanes >= n) break;
    for (int rows = 1; fits(rows, vectors, machine); ++rows) {
      const double cycles = static_cast<double>(panels) * panel_cycles(rows, vectors);
      if (*total >= 0 && cycles >= *total) continue;
      *total = cycles;
      best.rows = rows;
      best.vectors = vectors;
    }
  }
  return best;
}

/// Tiles of rows of A that share the L2 cache with a panel of B.
int64_t tiles_in_l2(int64_t tile_bytes, int64_t panel_bytes, const MachineFacts& machine) {
  return std::max<int64_t>(1, (machine.l2_bytes * 3 / 4 - panel_bytes) / tile_bytes);
}

bool widens_panels(DType weights, int64_t rows) { return weights != DType::F32 && rows >= kRowsToWidenFor; }

/// The order of the loops where panels are made float32 first: as many as there is room for.
void order_widened(TileSchedule& s, int64_t panel_bytes, int64_t panels) {
  if (panel_bytes * panels > kWidenedBytes) s.rows_inside = true;
  s.widened = panel_bytes > kWidenedBytes ? 0 : 1;
}

/// The length of as many blocks as `block` makes, if all are nearly equal: threads get equal work.
int64_t evened(int64_t length, int64_t block) { return ceil_div(length, ceil_div(length, block)); }

/// Halves the blocks until there is work for several threads, unless tasks would get too small to be worth
/// one.
void split_tasks(TileSchedule& s, int64_t batch, int64_t row_tiles, int64_t panels, double cycles) {
  auto tasks = [&] { return batch * ceil_div(row_tiles, s.row_block) * ceil_div(panels, s.col_block); };
  while (tasks() < kMinTasks && cycles / static_cast<double>(2 * tasks()) > kMinTaskCycles) {
    if (s.rows_inside ? s.col_block > 1 : s.row_block == 1 && s.col_block > 1) {
      s.col_block = ceil_div(s.col_block, 2);
    } else if (s.row_block > 1) {
      s.row_block = ceil_div(s.row_block, 2);
    } else {
      break;
    }
  }
  s.row_block = evened(row_tiles, s.row_block);
  s.col_block = evened(panels, s.col_block);
}

}  // namespace

MachineFacts machine_facts(const Target& target) {
  MachineFacts m;
  m.l1_bytes = target.l1_bytes;
  m.l2_bytes = target.l2_bytes;
  m.matrix_registers = target.isa >= Target::Isa::Amx;
  // Processors that have both take two cycles for a vector of pairs: measured on one of 2023.
  if (m.matrix_registers) m.pair_multiplies = 0.5;
  if (target.isa >= Target::Isa::Avx512) return m;
  m.registers = 16;
  m.lanes = target.isa == Target::Isa::Avx2 ? 8 : 4;
  return m;
}

int matrix_step(int64_t words) {
  for (int step = kMatrixRows; step > 1; --step)
    if (words % step == 0) return step;
  return 1;
}

RowCut cut_rows(int64_t length, int64_t most) {
  RowCut cut;
  cut.tiles = ceil_div(length, most);
  cut.height = length / cut.tiles;
  cut.longer = length % cut.tiles;
  return cut;
}

std::string print(const TileSchedule& s) {
  std::ostringstream out;
  out << "tile " << s.rows << " x " << s.vectors << " x " << s.lanes << " bands " << s.bands << " block "
      << s.row_block << " x " << s.col_block << (s.rows_inside ? " rows inside" : " panels inside")
      << " prefetch " << s.prefetch;
  if (s.widened) out << " widened " << s.widened;
  if (s.matrix_step) out << " matrix step " << s.matrix_step;
  if (s.k_block) out << " by " << s.k_block;
  return out.str();
}

TileSchedule schedule_gemm(const GemmKernel& kernel, const MachineFacts& machine, int64_t m_hint) {
  verify(kernel);
  const int64_t m = std::max<int64_t>(1, kernel.m.value_or(m_hint));
  const bool widens = widens_panels(kernel.weights, m);
  const FactorTypes of{kernel.pairs, kernel.weights != DType::F32 && !widens};
  double cycles = 0;
  TileSchedule s = best_tile(
      kernel.n, machine,
      [&](int rows, int vectors) { return column_cycles(cut_rows(m, rows), vectors, kernel.k, of, machine); },
      &cycles);
  auto matrix_panel = [&](int vectors, int step) { return matrix_cycles(m, vectors, kernel.k, step); };
  if (!kernel.pairs || !take_matrix_registers(s, kernel.n, kernel.k, machine, matrix_panel, &cycles)) {
    if (!kernel.m.is_const()) s.rows = std::max(s.rows, 8);
    while (!fits(s.rows, s.vectors, machine)) --s.rows;
  }

  int64_t batch = 1;
  for (const BatchDim& dim : kernel.batch) batch *= dim.size;
  const int64_t panels = ceil_div(kernel.n, s.width());
  const int64_t row_tiles = ceil_div(m, s.rows);
  const int64_t panel_bytes = kernel.k * s.width() * 4;
  const int64_t tile_bytes = kernel.k * 4 * s.rows;
  if (!kernel.b.packed && panel_bytes > kScratchBytes)
    throw_unsupported("panel too long to copy: ", print(kernel));
  s.rows_inside = !kernel.b.packed || panel_bytes * panels > machine.l2_bytes / 2;
  if (widens) order_widened(s, panel_bytes, panels);
  s.row_block =
      s.rows_inside ? std::min(row_tiles, tiles_in_l2(tile_bytes, panel_bytes, machine)) : row_tiles;
  if (kernel.a.col_stride != 1) s.row_block = std::clamp<int64_t>(kScratchBytes / tile_bytes, 1, s.row_block);
  s.col_block = panels;
  s.prefetch = kPrefetchBytes;
  split_tasks(s, batch, row_tiles, panels, cycles * static_cast<double>(batch));
  if (s.widened && !s.rows_inside) s.widened = s.col_block;
  if (s.matrix_step && s.rows_inside && s.row_block > 1 && kernel.k > kUnbrokenWords)
    s.k_block = round_up(ceil_div(kernel.k, ceil_div(kernel.k, kBlockWords)), s.matrix_step);
  return s;
}

bool reads_in_place(const ConvKernel& kernel) { return !kernel.padded() && kernel.x_channel == 1; }

int64_t strip_floats(const ConvKernel& kernel, const TileSchedule& s) {
  if (reads_in_place(kernel)) return 0;
  const int64_t out_rows = std::min(kernel.out_height(), s.row_block * s.bands);
  const int64_t in_rows = (out_rows - 1) * kernel.stride_h + (kernel.kernel_h - 1) * kernel.dilation_h + 1;
  return in_rows * kernel.padded_width() * kernel.in_channels;
}

TileSchedule schedule_conv(const ConvKernel& kernel, const MachineFacts& machine) {
  verify(kernel);
  const int64_t columns = kernel.out_width();
  const int64_t k = kernel.kernel_h * kernel.kernel_w * (kernel.in_channels / kernel.groups);
  const int64_t n = kernel.out_channels / kernel.groups;
  const bool widens = widens_panels(kernel.weights, columns * kernel.out_height());
  const FactorTypes of{kernel.pairs, kernel.weights != DType::F32 && !widens};
  auto bands_of = [&](int64_t rows) { return std::clamp<int64_t>(rows / columns, 1, kernel.out_height()); };
  auto panel_cycles = [&](int rows, int vectors) {
    const int64_t bands = bands_of(rows);
    if (bands == 1) {
      return static_cast<double>(kernel.out_height()) *
             column_cycles(cut_rows(columns, rows), vectors, k, of, machine);
    }
    const int64_t whole = kernel.out_height() / bands, rest = kernel.out_height() % bands;
    return static_cast<double>(whole) * tile_cycles(bands * columns, vectors, k, of, machine) +
           (rest ? tile_cycles(rest * columns, vectors, k, of, machine) : 0);
  };
  double cycles = 0;
  TileSchedule s = best_tile(n, machine, panel_cycles, &cycles);
  s.bands = static_cast<int>(bands_of(s.rows));
  // Rows of more than 16 pixels are tiles of their own; of shorter ones each has a matrix register.
  auto matrix_panel = [&](int vectors, int step) {
    const int64_t rows = columns > kMatrixRows ? columns : 2 * kMatrixRows;
    const auto bands = static_cast<double>(kernel.out_height()) / (columns > kMatrixRows ? 1 : 2);
    return bands * matrix_cycles(rows, vectors, k, step);
  };
  const int64_t words = kernel.in_channels / kernel.groups;
  if (kernel.pairs && take_matrix_registers(s, n, words, machine, matrix_panel, &cycles))
    s.bands = columns > kMatrixRows ? 1 : static_cast<int>(std::min<int64_t>(2, kernel.out_height()));
  s.prefetch = kPrefetchBytes;

  const int64_t panels = kernel.groups * ceil_div(n, s.width());
  const int64_t bands = ceil_div(kernel.out_height(), s.bands);
  const int64_t weights = kernel.groups * k * round_up(n, s.width()) * 4;
  s.rows_inside = weights > machine.l2_bytes / 2;
  if (widens) order_widened(s, k * s.width() * 4, panels);
  s.row_block = bands;
  s.col_block = panels;
  split_tasks(s, kernel.images.value_or(1), bands, panels, cycles * static_cast<double>(kernel.groups));
  if (s.widened && !s.rows_inside) s.widened = s.col_block;
  while (s.row_block > 1 && strip_floats(kernel, s) * 4 > kScratchBytes)
    s.row_block = ceil_div(s.row_block, 2);
  if (strip_floats(kernel, s) * 4 > 2 * kScratchBytes)
    throw_unsupported("convolution rows too long: ", print(kernel));
  return s;
}

Sym count_tiles(Sym rows, int most) {
  return rows.is_const() ? Sym(cut_rows(rows.value(), most).tiles) : ceildiv(rows, most);
}

WorkItems launch_gemm(const GemmKernel& kernel, const TileSchedule& s) {
  int64_t batch = 1;
  for (const BatchDim& dim : kernel.batch) batch *= dim.size;
  const int64_t col_blocks = ceil_div(ceil_div(kernel.n, s.width()), s.col_block);
  return {Sym(batch * col_blocks) * ceildiv(count_tiles(kernel.m, s.rows), s.row_block), 1};
}

WorkItems launch_conv(const ConvKernel& kernel, const TileSchedule& s) {
  const int64_t bands = ceil_div(kernel.out_height(), s.bands);
  const int64_t panels = kernel.groups * ceil_div(kernel.out_channels / kernel.groups, s.width());
  return {kernel.images * Sym(ceil_div(bands, s.row_block) * ceil_div(panels, s.col_block)), 1};
}

WorkItems launch_depthwise(const ConvKernel& kernel) {
  constexpr int64_t kMultipliesWorthAThread = 200000;  // about 10 us
  const int64_t multiplies = kernel.out_width() * kernel.in_channels * kernel.kernel_h * kernel.kernel_w;
  return {kernel.images * Sym(kernel.out_height()),
          std::max<int64_t>(1, kMultipliesWorthAThread / std::max<int64_t>(1, multiplies))};
}

int depthwise_columns(const ConvKernel& kernel) {
  constexpr int64_t kMost = 8;
  return static_cast<int>(ceil_div(kernel.out_width(), ceil_div(kernel.out_width(), kMost)));
}

}  // namespace bolt::codegen::cpu::gemm

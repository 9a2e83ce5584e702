// codegen/cuda/schedule.h
// Kernel -> Schedule: how the iteration space maps to blocks, threads and vectors. Data only; the emitter
// takes (kernel, schedule) and adds nothing of its own.
//
//   Points    each thread computes `vector` consecutive points of the whole space
//   Tile      pointwise, with loads that run along another dimension (`across`) than the stores: a block
//   turns
//             a square of `tile` x `tile` elements in shared memory
//   Thread    a thread computes a row: tiny rows
//   Warp      32 threads compute a row, several rows per block: short rows
//   Block     a block computes a row: long rows, and reductions of everything
//   Columns   rows lie next to each other in memory (column sums): threads that stand beside each other take
//             neighbouring rows, `vector` each, `group` threads share one row
//
// The reduced dimensions are a row, the others count rows. A scan's row is worked through in order, by as
// many elements at a time as threads share it; columns that scan have a thread each.
//
//   vector       consecutive elements of dimension `inner` per access: up to 16 bytes of the narrowest dtype
//   shift        rows that begin between two accesses: their vectors begin so many elements before the row
//   does,
//                so the first and the last one may hold elements that are no part of it
//   held         vectors per thread that make up a whole row: values stay in registers from one reduction to
//                the next; 0: a later sweep computes them again
//   in_shared    longer rows: what a thread has loaded lies in shared memory until the next sweep, which
//   computes
//                the rest again
//   cluster      blocks that share a row too long for one, reading each other's partial results (sm_90 on)
//   narrow       the whole space is below 2^31 points: positions are 32 bits wide, whose division is cheap
//                (known, or to be seen to when sizes are)
//
// Sizes of dimensions are at least 1 when a kernel is launched. A kernel may store over memory that it also
// reads under another buffer only as loops/in_place.h says, and only if each of its stores varies over the
// whole space: points run in no order.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/sweeps.h"
#include "loops/kernel.h"

namespace bolt::codegen::cuda {

/// Clusters of more blocks than this must be asked for (cuFuncSetAttribute).
constexpr int kPortableCluster = 8;

enum class Mapping : uint8_t { Points, Tile, Thread, Warp, Block, Columns };

struct Schedule {
  Mapping way = Mapping::Points;
  std::vector<int> outer, row;  // dimensions, outermost first; pointwise kernels have no row
  int inner = -1;               // of the vectors; -1: the space is one point
  int across = -1;              // Tile
  int tile = 0;                 // Tile: elements of inner and of across
  int vector = 1;
  bool shifted = false;
  Sym shift = 0;      // modulo `vector`; may rest on the dimensions outside of `inner`
  int threads = 256;  // per block
  int group = 1;      // threads that share a row, in all blocks
  int held = 0;
  bool in_shared = false;
  bool holds_functions = false;  // in_shared: what functions give, in place of what they read
  int cluster = 1;
  bool narrow = false;
  Sym points = 0;  // of the whole space, where `narrow` rests on their being few; else 0
  Sym count = 0;   // of what the grid counts: points, rows; vectors of them where these lie side by side
  Sym blocks = 1;
  bool scans = false;
  Sweeps sweeps;  // what a thread computes when

  bool pointwise() const { return way == Mapping::Points || way == Mapping::Tile; }
  /// Rows that the threads of a block work on at once.
  int rows() const { return threads / group; }
};

struct ScheduleOptions {
  int capability = 90;
  /// Every buffer starts at a multiple of 16 bytes. Whoever launches knows; without it no access is wide.
  bool aligned = true;
  /// Spaces of unknown size are below 2^31 points. Whoever launches knows, by Schedule::points.
  bool narrow = true;
  /// Rows of unknown length may be cut into chunks.
  bool split = true;
  /// Blocks of twice as many threads as usual for each step up, of half as many for each step down.
  int wider = 0;
};

/// By loops::Step::schedule: ScheduleOptions::wider.
constexpr int kWider[] = {0, 1, -1};

/// Why there is no CUDA code for this kernel; empty when there is. The kernel is normalised.
BOLT_API std::string refusal(const loops::Kernel& kernel);

/// The kernel is normalised and not refused.
BOLT_API Schedule schedule(const loops::Kernel& kernel, const ScheduleOptions& options = {});

/// Shared memory that the launch provides for a block.
BOLT_API int64_t shared_bytes(const loops::Kernel& kernel, const Schedule& s);

/// Is this load turned in shared memory?
bool is_turned(const Schedule& s, const loops::Expr& load);

/// Elements from one row of a load's square to the next. The room at a row's end spreads columns over the
/// banks.
int row_of_square(const Schedule& s, DType dtype);

/// "one warp per row, ...": heads the kernel's text.
BOLT_API std::string print(const Schedule& s);

/// Vectors that cover a row of so many elements, wherever it begins.
BOLT_API Sym vectors_of(const Schedule& s, Sym elements);

/// Of a row of known length: vectors that each of its threads has, or elements where rows lie side by side.
int64_t turns_of(const loops::Kernel& kernel, const Schedule& s);

/// Has the expression one value for all elements of a vector? So has what does not vary along `inner`, and a
/// comparison of the position there with a place where vectors begin.
bool is_same_in_vector(const loops::Kernel& k, const Schedule& s, loops::ExprId id);

/// May `vector` elements from here on be one access?
bool is_wide(const loops::Kernel& k, const Schedule& s, Sym index,
             const std::vector<loops::GatherTerm>& gather, loops::ExprId mask);

}  // namespace bolt::codegen::cuda

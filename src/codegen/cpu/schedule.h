// codegen/cpu/schedule.h
// Kernel -> LoopSchedule: how the iteration space maps to work items, vectors and registers. Data only; the
// emitter takes (kernel, schedule) and adds nothing of its own.
//
//   work item    one point of `outer`: the parallel dimensions, those in registers cut into blocks
//   vector       `lanes` consecutive indices of vec_dim; `unroll` vectors are in flight at once
//   tile         a second dimension in registers: `tile` consecutive indices of tile_dim. With a transposing
//                access the lanes x tile square is turned in registers; in a reduction it gives more
//                accumulators. Where a store runs along a dimension of two or four, vectors of its neighbour
//                are put between each other (interleaves_along).
//   whole_row    vec_dim fits into unroll * lanes: it has no loop, and every value of the row stays in
//                registers from one reduction to the next
//   sweep_rows   of a column reduction: so many rows at a time are read along the whole block of vec_dim,
//                their results added to a row of sweep_block accumulators in L1
//   streamed     buffers too large to be in a cache when they are read again: stored past it, which saves
//                reading their lines first
//   kept         values of a long row that a later sweep reads from a row buffer in L1/L2 instead of
//                computing again
//   rounds       vectors in flight of a row's reduction, where it is cheaper than the rest of the kernel
//   ahead        while the last reduction of a long row computes, the next row of these loads is on its way
//                to the cache
//
// Scans run through their dimension in an item, as scatters do through those along which they may meet: these
// are rows, too. How lanes along a scan are combined is said in emit_scan.cpp.
//
// Reductions over vec_dim are row reductions (accumulators are folded across lanes at the end), over others
// column reductions (each lane has its own result). Both may occur in one kernel with any number of loops.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/cpu/jit.h"
#include "loops/kernel.h"
#include "loops/normalise.h"

namespace bolt::codegen::cpu {

constexpr int64_t kLineBytes = 64;  // of the cache

struct OuterDim {
  int dim;
  Sym block;  // indices per work item; 1 for plain dimensions
};

struct LoopSchedule {
  std::vector<OuterDim> outer;  // outermost first
  int vec_dim = -1;
  int lanes = 1;
  int unroll = 1;
  int tile_dim = -1;
  int tile = 1;
  bool whole_row = false;
  int sweep_rows = 0;
  int64_t sweep_block = 0;
  std::vector<loops::ExprId> kept;
  std::vector<int> streamed;
  std::map<loops::ExprId, int> rounds;
  std::vector<loops::ExprId> ahead;
  loops::ExprId ahead_of = loops::kNone;  // the reduction
  int64_t ahead_distance = 0;             // of squares: in vec_dim
  int ahead_locality = 3;                 // of llvm.prefetch: 3 is L1, 2 is L2
  Sym row_elements;                       // size of one kept value's row buffer
  Sym work;
  int64_t grain = 1;
};

/// Are lanes so few elements apart that they are taken out of whole vectors?
inline bool is_near(int64_t step) { return step != 0 && -4 <= step && step <= 4; }

/// The dimension along which the store runs through as many elements as it steps over along `vec_dim`, two or
/// four: what vectors hold for each of them lies in one run of memory. -1: there is none.
int interleaves_along(const loops::Kernel& kernel, const loops::Store& store, int vec_dim);

/// Is the load's mask, if it has one, the same for all of a square?
bool is_one_mask(const loops::Kernel& kernel, const loops::Expr& load, int vec_dim, int tile_dim);

BOLT_API LoopSchedule schedule(const loops::Kernel& kernel, const Target& target);
BOLT_API std::string print(const LoopSchedule& s);

using loops::linear_in;
using loops::LinearIn;
using loops::mentions;
using loops::normalise;

}  // namespace bolt::codegen::cpu

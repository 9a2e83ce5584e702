// codegen/cpu/gemm/panels.h
// the tiles and panels of a task -> the loops over them, with the panels of packed weights on the way
//
//   rows_inside    for panel: for tile        the panel stays in the cache, rows come by
//   else           for tile: for panel        all panels stay there
//
// Halves that the schedule wants widened are made float32 in scratch on the stack before the loops that go
// over them again: each panel for all tiles, or all panels of the task at once.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <functional>

#include "codegen/cpu/gemm/schedule.h"

namespace bolt::codegen::cpu::gemm {

/// Indices from `first` to before `last`.
struct Indices {
  llvm::Value* first;
  llvm::Value* last;
};
/// The `index`-th of the parts of `size` that `count` is cut into.
Indices part_of(llvm::IRBuilder<>& b, llvm::Value* index, int64_t size, llvm::Value* count);

/// A tile's function, and its first row; of a convolution the row and column of its first pixel.
struct TileAt {
  llvm::Function* function;
  llvm::Value* row;
  llvm::Value* column = nullptr;
};
using EachTile = std::function<void(const TileAt&)>;

/// B in panels as pack.h lays them out.
class PackedPanels {
 public:
  /// `k`: numbers of a column. In the kernel's entry block, where scratch is made.
  PackedPanels(llvm::IRBuilder<>& b, const TileSchedule& schedule, DType weights, int64_t k);

  /// The panels are read from here on.
  void begin(llvm::Value* packed) { packed_ = packed; }
  /// Makes float32 of these, if the schedule says so.
  void widen(const Indices& panels);
  llvm::Value* at(llvm::Value* panel) const;

 private:
  llvm::Value* numbers_of(llvm::Value* panels) const;

  llvm::IRBuilder<>& b_;
  const TileSchedule& s_;
  const DType weights_;
  const int64_t k_;
  llvm::Value* scratch_ = nullptr;
  llvm::Value* packed_ = nullptr;
  llvm::Value* first_widened_ = nullptr;  // panel
};

/// What loops over a task need to be told.
struct TaskLoops {
  /// Loops over the task's tiles, with this in them.
  std::function<void(const EachTile&)> tiles;
  /// Where a panel's numbers are, which may be copied there first.
  std::function<llvm::Value*(llvm::Value* panel)> panel_at;
  std::function<void(const TileAt&, llvm::Value* panel, llvm::Value* numbers)> one;
};
void emit_task_loops(llvm::IRBuilder<>& b, const TileSchedule& schedule, PackedPanels& packed,
                     const Indices& panels, const TaskLoops& task);

}  // namespace bolt::codegen::cpu::gemm

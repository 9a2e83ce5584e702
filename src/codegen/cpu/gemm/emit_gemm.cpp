// codegen/cpu/gemm/emit_gemm.cpp
// GemmKernel -> LLVM IR; see emit_gemm.h for the order of the work
#include "codegen/cpu/gemm/emit_gemm.h"

#include <algorithm>
#include <optional>

#include "codegen/cpu/gemm/amx_tile.h"
#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/gemm/pack_emit.h"
#include "codegen/cpu/gemm/panels.h"
#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;

class GemmEmitter {
 public:
  GemmEmitter(llvm::Module& module, const GemmKernel& kernel, const TileSchedule& schedule,
              const Epilogue& epilogue, const SizeEmitter& size)
      : module_(module),
        kernel_(kernel),
        s_(schedule),
        epilogue_(epilogue),
        size_(size),
        b_(module.getContext()) {}

  void emit() {
    make_tiles();
    args_ = begin_kernel(module_, b_, kernel_.name);
    rows_ = size_(b_, args_.syms, kernel_.m);
    if (s_.matrix_step) height_ = emit_amx_begin(b_, rows_, s_.matrix_step);
    row_tiles_ = count_tiles(kernel_.m, s_.rows);
    col_blocks_ = (panels() + s_.col_block - 1) / s_.col_block;
    Value* row_blocks = b_.CreateUDiv(
        b_.CreateAdd(size_(b_, args_.syms, row_tiles_), i64(b_, s_.row_block - 1)), i64(b_, s_.row_block));
    a_base_ = load_buffer(b_, args_.buffers, kernel_.a.buffer);
    b_base_ = load_buffer(b_, args_.buffers, kernel_.b.buffer);
    if (packs_a()) a_scratch_ = reserve_floats(b_, s_.row_block * s_.rows * kernel_.k);
    if (packs_b()) b_scratch_ = reserve_floats(b_, kernel_.k * s_.width());
    packed_.emplace(b_, s_, kernel_.weights, kernel_.k);
    if (s_.k_block) sums_ = reserve_floats(b_, (s_.row_block * s_.rows + kMatrixRows) * s_.width());
    emit_for(b_, args_.begin, args_.end, 1, [&](Value* task) { emit_task(task, row_blocks); });
    if (s_.matrix_step) emit_amx_end(b_);
    b_.CreateRetVoid();
  }

 private:
  bool packs_a() const { return kernel_.a.col_stride != 1; }
  bool packs_b() const {
    return !kernel_.b.packed && (kernel_.b.col_stride != 1 || kernel_.n % s_.width() != 0);
  }
  int64_t panels() const { return (kernel_.n + s_.width() - 1) / s_.width(); }
  bool masked() const { return kernel_.n % s_.width() != 0; }

  llvm::Function* tile_of(int64_t rows) {
    TileShape shape;
    shape.vectors = s_.vectors;
    shape.lanes = s_.lanes;
    shape.pairs = kernel_.pairs;
    shape.b = s_.widened ? DType::F32 : kernel_.weights;
    shape.prefetch = kernel_.b.packed ? s_.prefetch : 0;
    shape.k = {{kernel_.k, 1}};
    shape.b_step = kernel_.b.packed || packs_b() ? s_.width() : kernel_.b.row_stride;
    const int64_t row_stride = packs_a() ? kernel_.k : kernel_.a.row_stride;
    for (int64_t r = 0; r < rows; ++r) shape.row_offsets.push_back(r * row_stride);
    return emit_tile_function(module_, kernel_.name + ".tile" + std::to_string(rows), shape, epilogue_,
                              masked());
  }

  llvm::Function* matrix_tile_of(int registers) {
    AmxShape shape;
    shape.registers = registers;
    shape.vectors = s_.vectors;
    shape.row_stride = kernel_.a.row_stride;
    shape.k = {{kernel_.k, 1}};
    shape.step = s_.matrix_step;
    shape.blocks = s_.k_block > 0;
    return emit_amx_tile_function(module_, kernel_.name + ".matrix" + std::to_string(registers), shape,
                                  epilogue_, masked());
  }

  void make_tiles() {
    if (s_.matrix_step) {
      const int64_t rest = kernel_.m.is_const() ? kernel_.m.value() % s_.rows : 1;
      if (rest > 0 && rest <= kMatrixRows) tail_tiles_.emplace_back(kMatrixRows, matrix_tile_of(1));
      if (!kernel_.m.is_const() || kernel_.m.value() > kMatrixRows) tile_ = matrix_tile_of(2);
      return;
    }
    if (kernel_.m.is_const()) {
      cut_ = cut_rows(kernel_.m.value(), s_.rows);
      if (cut_.longer) longer_tile_ = tile_of(cut_.height + 1);
      tile_ = tile_of(cut_.height);
      return;
    }
    tile_ = tile_of(s_.rows);
    for (int64_t rows : {16, 8, 4, 2, 1}) {
      if (rows < s_.rows) tail_tiles_.emplace_back(rows, tile_of(rows));
    }
  }

  void emit_task(Value* task, Value* row_blocks) {
    Value* col_block = b_.CreateURem(task, i64(b_, col_blocks_));
    Value* rest = b_.CreateUDiv(task, i64(b_, col_blocks_));
    Value* row_block = b_.CreateURem(rest, row_blocks);
    batch_ = b_.CreateUDiv(rest, row_blocks);
    const Indices tiles = part_of(b_, row_block, s_.row_block, size_(b_, args_.syms, row_tiles_));
    const Indices panels = part_of(b_, col_block, s_.col_block, i64(b_, this->panels()));
    locate_batch();
    if (packs_a()) pack_rows(tiles);
    packed_->begin(b_matrix_);
    emit_task_loops(b_, s_, *packed_, panels,
                    {.tiles = [&](const EachTile& each) { emit_blocks(tiles, each); },
                     .panel_at = [&](Value* panel) { return panel_pointer(panel); },
                     .one = [&](const TileAt& tile, Value* panel,
                                Value* numbers) { emit_tile(tile.function, tile.row, panel, numbers); }});
  }

  /// Of the words of K, each block with all rows.
  void emit_blocks(const Indices& tiles, const EachTile& each) {
    if (!s_.k_block) return emit_rows(tiles, each);
    task_row_ = b_.CreateMul(tiles.first, i64(b_, s_.rows));
    emit_for(b_, i64(b_, 0), i64(b_, kernel_.k), s_.k_block, [&](Value* block) {
      block_ = block;
      words_ = minimum(b_, i64(b_, s_.k_block), b_.CreateSub(i64(b_, kernel_.k), block));
      emit_rows(tiles, each);
    });
  }

  /// Pointers of this batch item's matrices.
  void locate_batch() {
    a_ = a_base_;
    b_matrix_ = b_base_;
    Value* rest = batch_;
    for (auto dim = kernel_.batch.rbegin(); dim != kernel_.batch.rend(); ++dim) {
      Value* index = b_.CreateURem(rest, i64(b_, dim->size));
      rest = b_.CreateUDiv(rest, i64(b_, dim->size));
      a_ = float_at(b_, a_, b_.CreateMul(index, i64(b_, dim->a_stride)));
      b_matrix_ = float_at(b_, b_matrix_, b_.CreateMul(index, i64(b_, dim->b_stride)));
    }
  }

  void emit_rows(const Indices& tiles, const EachTile& each) {
    const auto& [first, last] = tiles;
    if (s_.matrix_step) return emit_matrix_rows(tiles, each);
    if (!kernel_.m.is_const()) return emit_dynamic_rows(tiles, each);
    Value* longer = i64(b_, cut_.longer);
    if (cut_.longer) {
      emit_for(b_, first, minimum(b_, last, longer), 1,
               [&](Value* t) { each({longer_tile_, b_.CreateMul(t, i64(b_, cut_.height + 1))}); });
    }
    emit_for(b_, cut_.longer ? maximum(b_, first, longer) : first, last, 1,
             [&](Value* t) { each({tile_, b_.CreateAdd(b_.CreateMul(t, i64(b_, cut_.height)), longer)}); });
  }

  /// One matrix register is enough for the last rows, if they are few.
  void emit_matrix_rows(const Indices& tiles, const EachTile& each) {
    const auto& [first, last] = tiles;
    Value* whole = last;
    if (!tail_tiles_.empty())
      whole = b_.CreateUDiv(b_.CreateAdd(rows_, i64(b_, s_.rows - kMatrixRows - 1)), i64(b_, s_.rows));
    if (tile_)
      emit_for(b_, first, minimum(b_, last, whole), 1,
               [&](Value* t) { each({tile_, b_.CreateMul(t, i64(b_, s_.rows))}); });
    for (const auto& [rows, tile] : tail_tiles_)
      emit_if(b_, b_.CreateICmpSLT(whole, last),
              [&, tile = tile] { each({tile, b_.CreateMul(whole, i64(b_, s_.rows))}); });
  }

  void emit_dynamic_rows(const Indices& tiles, const EachTile& each) {
    const auto& [first, last] = tiles;
    Value* whole = b_.CreateUDiv(rows_, i64(b_, s_.rows));
    emit_for(b_, first, minimum(b_, last, whole), 1,
             [&](Value* t) { each({tile_, b_.CreateMul(t, i64(b_, s_.rows))}); });
    emit_if(b_, b_.CreateICmpSLT(whole, last), [&] {
      Value* row = b_.CreateMul(whole, i64(b_, s_.rows));
      Value* left = b_.CreateSub(rows_, row);
      for (const auto& [rows, tile] : tail_tiles_) {
        Value* part = b_.CreateAnd(left, i64(b_, rows));
        emit_if(b_, b_.CreateICmpNE(part, i64(b_, 0)), [&, tile = tile] { each({tile, row}); });
        row = b_.CreateAdd(row, part);
      }
    });
  }

  void emit_tile(llvm::Function* tile, Value* row, Value* panel, Value* b_panel) {
    Value* col = b_.CreateMul(panel, i64(b_, s_.width()));
    Value* a_row = packs_a() ? b_.CreateMul(b_.CreateSub(row, scratch_row_), i64(b_, kernel_.k))
                             : b_.CreateMul(row, i64(b_, kernel_.a.row_stride));
    Value* result_row = kernel_.batch.empty() ? row : b_.CreateAdd(b_.CreateMul(batch_, rows_), row);
    std::vector<Value*> more;
    if (s_.matrix_step) more = {b_.CreateSub(rows_, row), height_};
    if (sums_) {
      // The last rows' register may begin in front of them, where the sums are those of a tile before.
      Value* at = b_.CreateSub(row, task_row_);
      if (tile != tile_) at = b_.CreateAdd(at, i64(b_, kMatrixRows));
      more.insert(more.end(), {float_at(b_, sums_, b_.CreateMul(at, i64(b_, s_.width()))), block_, words_});
    }
    call_tile(b_, tile, args_,
              {float_at(b_, packs_a() ? a_scratch_ : a_, a_row), b_panel, result_row, col,
               b_.CreateSub(i64(b_, kernel_.n), col), more});
  }

  Value* panel_pointer(Value* panel) {
    if (kernel_.b.packed) return packed_->at(panel);
    Value* col = b_.CreateMul(panel, i64(b_, s_.width()));
    Value* from = float_at(b_, b_matrix_, b_.CreateMul(col, i64(b_, kernel_.b.col_stride)));
    if (!packs_b()) return from;
    emit_pack_panel(b_, {from, kernel_.b.row_stride, kernel_.b.col_stride}, kernel_.k, s_.lanes, s_.vectors,
                    masked() ? b_.CreateSub(i64(b_, kernel_.n), col) : nullptr, b_scratch_);
    return b_scratch_;
  }

  /// Copies the task's rows of a transposed A into rows that follow each other.
  void pack_rows(const Indices& tiles) {
    scratch_row_ = row_of(tiles.first);
    Value* end = row_of(tiles.last);
    emit_for(b_, scratch_row_, end, 1, [&](Value* row) {
      Value* from = float_at(b_, a_, b_.CreateMul(row, i64(b_, kernel_.a.row_stride)));
      Value* to = float_at(b_, a_scratch_, b_.CreateMul(b_.CreateSub(row, scratch_row_), i64(b_, kernel_.k)));
      emit_for(b_, i64(b_, 0), i64(b_, kernel_.k), 1, [&](Value* k) {
        Value* number = b_.CreateLoad(b_.getFloatTy(),
                                      float_at(b_, from, b_.CreateMul(k, i64(b_, kernel_.a.col_stride))));
        b_.CreateStore(number, float_at(b_, to, k));
      });
    });
  }

  /// First row of a tile; of the tile after the last: the number of rows.
  Value* row_of(Value* tile) {
    if (!kernel_.m.is_const()) return minimum(b_, b_.CreateMul(tile, i64(b_, s_.rows)), rows_);
    return b_.CreateAdd(b_.CreateMul(tile, i64(b_, cut_.height)), minimum(b_, tile, i64(b_, cut_.longer)));
  }

  llvm::Module& module_;
  const GemmKernel& kernel_;
  const TileSchedule& s_;
  const Epilogue& epilogue_;
  const SizeEmitter& size_;
  llvm::IRBuilder<> b_;

  RowCut cut_;  // constant m
  llvm::Function* tile_ = nullptr;
  llvm::Function* longer_tile_ = nullptr;                        // constant m
  std::vector<std::pair<int64_t, llvm::Function*>> tail_tiles_;  // symbolic m
  KernelArgs args_{};
  Sym row_tiles_;
  int64_t col_blocks_ = 1;
  Value* rows_ = nullptr;
  Value* height_ = nullptr;  // of matrix registers
  Value* a_base_ = nullptr;
  Value* b_base_ = nullptr;
  Value* a_scratch_ = nullptr;
  Value* b_scratch_ = nullptr;
  std::optional<PackedPanels> packed_;
  // of the task being emitted
  Value* batch_ = nullptr;
  Value* a_ = nullptr;
  Value* b_matrix_ = nullptr;
  Value* scratch_row_ = nullptr;
  // of blocks of K: sums of the task's rows against one panel
  Value* sums_ = nullptr;
  Value* task_row_ = nullptr;
  Value* block_ = nullptr;
  Value* words_ = nullptr;
};

}  // namespace

void emit_gemm(llvm::Module& module, const GemmKernel& kernel, const TileSchedule& schedule,
               const Epilogue& epilogue, const SizeEmitter& size) {
  verify(kernel);
  GemmEmitter(module, kernel, schedule, epilogue, size).emit();
}

}  // namespace bolt::codegen::cpu::gemm

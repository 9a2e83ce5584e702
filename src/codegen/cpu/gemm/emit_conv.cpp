// codegen/cpu/gemm/emit_conv.cpp
// ConvKernel -> LLVM IR; see emit_conv.h
#include "codegen/cpu/gemm/emit_conv.h"

#include <optional>

#include "codegen/cpu/gemm/amx_tile.h"
#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/gemm/pack.h"
#include "codegen/cpu/gemm/panels.h"
#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;

class ConvEmitter {
 public:
  ConvEmitter(llvm::Module& module, const ConvKernel& kernel, const TileSchedule& schedule,
              const Epilogue& epilogue)
      : module_(module), c_(kernel), s_(schedule), epilogue_(epilogue), b_(module.getContext()) {
    strip_ = strip_floats(c_, s_) > 0;
    col_pitch_ = strip_ ? c_.in_channels : c_.x_col;
    row_pitch_ = strip_ ? c_.padded_width() * c_.in_channels : c_.x_row;
    bands_ = (c_.out_height() + s_.bands - 1) / s_.bands;
    group_panels_ = (group_out() + s_.width() - 1) / s_.width();
  }

  void emit() {
    make_tiles();
    args_ = begin_kernel(module_, b_, c_.name);
    x_ = load_buffer(b_, args_.buffers, c_.x);
    w_ = load_buffer(b_, args_.buffers, c_.w);
    if (strip_) {
      scratch_ = reserve_floats(b_, strip_floats(c_, s_));
      copied_ = b_.CreateAlloca(b_.getInt64Ty());
      b_.CreateStore(i64(b_, -1), copied_);
    }
    packed_.emplace(b_, s_, c_.weights, k());
    packed_->begin(w_);
    if (s_.matrix_step) height_ = emit_amx_begin(b_, i64(b_, c_.out_width()), s_.matrix_step);
    emit_for(b_, args_.begin, args_.end, 1, [&](Value* task) { emit_task(task); });
    if (s_.matrix_step) emit_amx_end(b_);
    b_.CreateRetVoid();
  }

 private:
  int64_t group_in() const { return c_.in_channels / c_.groups; }
  int64_t group_out() const { return c_.out_channels / c_.groups; }
  int64_t panels() const { return c_.groups * group_panels_; }
  int64_t strips() const { return (bands_ + s_.row_block - 1) / s_.row_block; }
  int64_t col_blocks() const { return (panels() + s_.col_block - 1) / s_.col_block; }
  int64_t k() const { return c_.kernel_h * c_.kernel_w * group_in(); }
  bool masked() const { return group_out() % s_.width() != 0; }

  /// The nest over (kh, kw, ci), with loops joined where A's addresses follow each other.
  std::vector<KLevel> k_nest() const {
    std::vector<KLevel> nest;
    auto add = [&](int64_t count, int64_t step) {
      if (count == 1) return;
      nest.push_back({count, step});
    };
    add(c_.kernel_h, c_.dilation_h * row_pitch_);
    add(c_.kernel_w, c_.dilation_w * col_pitch_);
    add(group_in(), 1);
    for (size_t i = nest.size(); i-- > 1;) {
      if (nest[i - 1].a_step != nest[i].count * nest[i].a_step) continue;
      nest[i - 1] = {nest[i - 1].count * nest[i].count, nest[i].a_step};
      nest.erase(nest.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return nest;
  }

  llvm::Function* tile_of(int64_t bands, int64_t columns) {
    TileShape shape;
    shape.pairs = c_.pairs;
    shape.vectors = s_.vectors;
    shape.lanes = s_.lanes;
    shape.b = s_.widened ? DType::F32 : c_.weights;
    shape.prefetch = s_.prefetch;
    shape.k = k_nest();
    shape.b_step = s_.width();
    for (int64_t y = 0; y < bands; ++y) {
      for (int64_t x = 0; x < columns; ++x) {
        shape.row_offsets.push_back(y * c_.stride_h * row_pitch_ + x * c_.stride_w * col_pitch_);
      }
    }
    const std::string name = c_.name + ".tile" + std::to_string(bands) + "x" + std::to_string(columns);
    return emit_tile_function(module_, name, shape, epilogue_, masked());
  }

  llvm::Function* matrix_tile_of(int registers) {
    AmxShape shape;
    shape.registers = registers;
    shape.vectors = s_.vectors;
    shape.row_stride = c_.stride_w * col_pitch_;
    if (s_.bands > 1 && registers > 1) shape.second = c_.stride_h * row_pitch_;
    shape.k = k_nest();
    if (shape.k.empty()) shape.k = {{1, 1}};
    shape.step = s_.matrix_step;
    return emit_amx_tile_function(module_, c_.name + ".matrix" + std::to_string(registers), shape, epilogue_,
                                  masked());
  }

  /// Rows of up to 16 pixels, two in a tile, or longer ones.
  void make_matrix_tiles() {
    const int64_t rest = c_.out_width() % s_.rows;
    if (s_.bands > 1) {
      tile_ = matrix_tile_of(2);
      if (c_.out_height() % 2) last_tile_ = matrix_tile_of(1);
    } else {
      if (c_.out_width() > kMatrixRows) tile_ = matrix_tile_of(2);
      if (rest > 0 && rest <= kMatrixRows) narrow_tile_ = matrix_tile_of(1);
    }
  }

  void make_tiles() {
    if (s_.matrix_step) return make_matrix_tiles();
    cut_ = cut_rows(c_.out_width(), s_.bands > 1 ? c_.out_width() : s_.rows);
    tile_ = tile_of(s_.bands, cut_.height);
    if (cut_.longer) longer_tile_ = tile_of(s_.bands, cut_.height + 1);
    if (c_.out_height() % s_.bands) last_tile_ = tile_of(c_.out_height() % s_.bands, cut_.height);
  }

  void emit_task(Value* task) {
    Value* col_block = b_.CreateURem(task, i64(b_, col_blocks()));
    Value* rest = b_.CreateUDiv(task, i64(b_, col_blocks()));
    Value* strip = b_.CreateURem(rest, i64(b_, strips()));
    image_ = b_.CreateUDiv(rest, i64(b_, strips()));
    const Indices bands = part_of(b_, strip, s_.row_block, i64(b_, bands_));
    const Indices panels = part_of(b_, col_block, s_.col_block, i64(b_, this->panels()));
    first_row_ = b_.CreateMul(bands.first, i64(b_, s_.bands));
    x_image_ = float_at(b_, x_, b_.CreateMul(image_, i64(b_, c_.x_image)));
    if (strip_) {
      // Tasks of one strip follow each other: it is copied for the first of them that this range holds.
      emit_if(b_, b_.CreateICmpNE(rest, b_.CreateLoad(b_.getInt64Ty(), copied_)), [&] {
        copy_strip(minimum(b_, b_.CreateMul(bands.last, i64(b_, s_.bands)), i64(b_, c_.out_height())));
        b_.CreateStore(rest, copied_);
      });
    }
    emit_task_loops(
        b_, s_, *packed_, panels,
        {.tiles = [&](const EachTile& each) { emit_pixels(bands, each); },
         .panel_at = [&](Value* panel) { return packed_->at(panel); },
         .one = [&](const TileAt& tile, Value* panel, Value* weights) { emit_tile(tile, panel, weights); }});
  }

  void emit_pixels(const Indices& bands, const EachTile& each) {
    Value* whole = last_tile_ ? minimum(b_, bands.last, i64(b_, bands_ - 1)) : bands.last;
    emit_for(b_, bands.first, whole, 1,
             [&](Value* band) { emit_band(b_.CreateMul(band, i64(b_, s_.bands)), each); });
    if (!last_tile_) return;
    emit_if(b_, b_.CreateICmpSLT(whole, bands.last),
            [&] { each({last_tile_, i64(b_, (bands_ - 1) * s_.bands), i64(b_, 0)}); });
  }

  void emit_band(Value* y, const EachTile& each) {
    if (s_.bands > 1) return each({tile_, y, i64(b_, 0)});
    if (s_.matrix_step) {
      const int64_t width = c_.out_width();
      const int64_t pairs = narrow_tile_ ? width / s_.rows * s_.rows : width;
      if (tile_) emit_for(b_, i64(b_, 0), i64(b_, pairs), s_.rows, [&](Value* x) { each({tile_, y, x}); });
      if (narrow_tile_) each({narrow_tile_, y, i64(b_, pairs)});
      return;
    }
    if (cut_.tiles == 1) return each({tile_, y, i64(b_, 0)});
    if (cut_.longer) {
      emit_for(b_, i64(b_, 0), i64(b_, cut_.longer * (cut_.height + 1)), cut_.height + 1,
               [&](Value* x) { each({longer_tile_, y, x}); });
    }
    emit_for(b_, i64(b_, cut_.longer * (cut_.height + 1)), i64(b_, c_.out_width()), cut_.height,
             [&](Value* x) { each({tile_, y, x}); });
  }

  void emit_tile(const TileAt& tile, Value* panel, Value* weights) {
    Value *y = tile.row, *x = tile.column;
    Value* a = strip_ ? scratch_ : x_image_;
    Value* a_row = strip_ ? b_.CreateSub(y, first_row_) : y;
    a = float_at(b_, a, b_.CreateMul(a_row, i64(b_, c_.stride_h * row_pitch_)));
    a = float_at(b_, a, b_.CreateMul(x, i64(b_, c_.stride_w * col_pitch_)));
    Value* col = b_.CreateMul(panel, i64(b_, s_.width()));
    Value* left = b_.CreateSub(i64(b_, group_out()), col);
    if (c_.groups > 1) {
      Value* group = b_.CreateUDiv(panel, i64(b_, group_panels_));
      Value* in_group = b_.CreateMul(b_.CreateURem(panel, i64(b_, group_panels_)), i64(b_, s_.width()));
      a = float_at(b_, a, b_.CreateMul(group, i64(b_, group_in())));
      col = b_.CreateAdd(b_.CreateMul(group, i64(b_, group_out())), in_group);
      left = b_.CreateSub(i64(b_, group_out()), in_group);
    }
    Value* image_row = b_.CreateAdd(b_.CreateMul(image_, i64(b_, c_.out_height())), y);
    Value* row = b_.CreateAdd(b_.CreateMul(image_row, i64(b_, c_.out_width())), x);
    std::vector<Value*> more;
    if (s_.matrix_step) more = {b_.CreateSub(i64(b_, c_.out_width()), x), height_};
    call_tile(b_, tile.function, args_, {a, weights, row, col, left, more});
  }

  /// Input rows that output rows [first_row_, last_row) need, with zeros around the image.
  void copy_strip(Value* last_row) {
    Value* rows = b_.CreateSub(last_row, first_row_);
    Value* count = b_.CreateAdd(b_.CreateMul(b_.CreateSub(rows, i64(b_, 1)), i64(b_, c_.stride_h)),
                                i64(b_, (c_.kernel_h - 1) * c_.dilation_h + 1));
    Value* first = b_.CreateSub(b_.CreateMul(first_row_, i64(b_, c_.stride_h)), i64(b_, c_.pad_h));
    emit_for(b_, i64(b_, 0), count, 1, [&](Value* row) {
      Value* to = float_at(b_, scratch_, b_.CreateMul(row, i64(b_, row_pitch_)));
      Value* y = b_.CreateAdd(first, row);
      // One unsigned comparison: negative rows are huge.
      emit_if(
          b_, b_.CreateICmpULT(y, i64(b_, c_.height)), [&] { copy_row(to, y); },
          [&] { emit_copy(b_, s_.lanes, to, nullptr, i64(b_, row_pitch_)); });
    });
  }

  void copy_row(Value* to, Value* y) {
    const int64_t front = c_.pad_w * c_.in_channels;
    const int64_t behind = c_.pad_end_w * c_.in_channels;
    Value* from = float_at(b_, x_image_, b_.CreateMul(y, i64(b_, c_.x_row)));
    Value* inside = float_at(b_, to, front);
    if (front) emit_copy(b_, s_.lanes, to, nullptr, i64(b_, front));
    if (behind)
      emit_copy(b_, s_.lanes, float_at(b_, inside, c_.width * c_.in_channels), nullptr, i64(b_, behind));
    if (c_.x_channel == 1 && c_.x_col == c_.in_channels) {
      emit_copy(b_, s_.lanes, inside, from, i64(b_, c_.width * c_.in_channels));
      return;
    }
    emit_for(b_, i64(b_, 0), i64(b_, c_.in_channels), 1, [&](Value* channel) {
      Value* plane = float_at(b_, from, b_.CreateMul(channel, i64(b_, c_.x_channel)));
      emit_for(b_, i64(b_, 0), i64(b_, c_.width), 1, [&](Value* x) {
        Value* number =
            b_.CreateLoad(b_.getFloatTy(), float_at(b_, plane, b_.CreateMul(x, i64(b_, c_.x_col))));
        b_.CreateStore(number,
                       float_at(b_, inside, b_.CreateAdd(b_.CreateMul(x, i64(b_, c_.in_channels)), channel)));
      });
    });
  }

  llvm::Module& module_;
  const ConvKernel& c_;
  const TileSchedule& s_;
  const Epilogue& epilogue_;
  llvm::IRBuilder<> b_;

  bool strip_ = false;     // input rows are copied first
  int64_t col_pitch_ = 0;  // elements between two input pixels as the tiles see them
  int64_t row_pitch_ = 0;
  int64_t bands_ = 0;  // of tiles, in an image
  int64_t group_panels_ = 0;
  RowCut cut_;  // of an output row
  llvm::Function* tile_ = nullptr;
  llvm::Function* longer_tile_ = nullptr;
  llvm::Function* narrow_tile_ = nullptr;  // of one matrix register, where a row ends
  llvm::Function* last_tile_ = nullptr;    // the last band, when it has fewer rows
  KernelArgs args_{};
  Value* x_ = nullptr;
  Value* w_ = nullptr;
  Value* scratch_ = nullptr;
  std::optional<PackedPanels> packed_;
  Value* height_ = nullptr;             // of matrix registers
  llvm::AllocaInst* copied_ = nullptr;  // which strip of which image scratch_ holds
  // of the task being emitted
  Value* image_ = nullptr;
  Value* x_image_ = nullptr;
  Value* first_row_ = nullptr;
};

}  // namespace

void emit_conv(llvm::Module& module, const ConvKernel& kernel, const TileSchedule& schedule,
               const Epilogue& epilogue, const SizeEmitter&) {
  verify(kernel);
  ConvEmitter(module, kernel, schedule, epilogue).emit();
}

}  // namespace bolt::codegen::cpu::gemm

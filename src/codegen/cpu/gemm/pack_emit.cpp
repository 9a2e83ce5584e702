// codegen/cpu/gemm/pack_emit.cpp
// copying panels at run time; see pack_emit.h
#include "codegen/cpu/gemm/pack_emit.h"

#include <utility>
#include <vector>

#include "codegen/cpu/gemm/emit_util.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;

class PanelPacker {
 public:
  PanelPacker(llvm::IRBuilder<>& b, const PanelSource& from, int64_t k, int lanes, int vectors,
              Value* columns_left, Value* to)
      : b_(b),
        from_(from),
        k_(k),
        lanes_(lanes),
        vectors_(vectors),
        left_(columns_left),
        to_(to),
        type_(llvm::FixedVectorType::get(b.getFloatTy(), static_cast<unsigned>(lanes))) {}

  void emit() {
    if (from_.col_stride == 1) return copy_rows();
    const int64_t whole = from_.row_stride == 1 && !left_ ? k_ / lanes_ * lanes_ : 0;
    if (whole) transpose(whole);
    if (whole < k_) copy_numbers(whole);
  }

 private:
  int64_t width() const { return int64_t{lanes_} * vectors_; }
  Value* target(Value* k, int64_t column) {
    return float_at(b_, to_, b_.CreateAdd(b_.CreateMul(k, i64(b_, width())), i64(b_, column)));
  }

  void copy_rows() {
    std::vector<Value*> masks;
    for (int v = 0; left_ && v < vectors_; ++v) {
      masks.push_back(lane_mask(b_, lanes_, b_.CreateSub(left_, i64(b_, int64_t{v} * lanes_))));
    }
    emit_for(b_, i64(b_, 0), i64(b_, k_), 1, [&](Value* k) {
      Value* row = float_at(b_, from_.first, b_.CreateMul(k, i64(b_, from_.row_stride)));
      for (int v = 0; v < vectors_; ++v) {
        Value* address = float_at(b_, row, int64_t{v} * lanes_);
        Value* data = left_
                          ? static_cast<Value*>(b_.CreateMaskedLoad(type_, address, llvm::Align(4), masks[v],
                                                                    llvm::Constant::getNullValue(type_)))
                          : static_cast<Value*>(b_.CreateAlignedLoad(type_, address, llvm::Align(4)));
        b_.CreateAlignedStore(data, target(k, int64_t{v} * lanes_), llvm::Align(4));
      }
    });
  }

  /// Columns lie whole in memory: `lanes` of them, `lanes` numbers of each, at a time.
  void transpose(int64_t whole) {
    emit_for(b_, i64(b_, 0), i64(b_, whole), lanes_, [&](Value* k) {
      for (int v = 0; v < vectors_; ++v) {
        std::vector<Value*> square;
        for (int column = 0; column < lanes_; ++column) {
          Value* start = float_at(b_, from_.first, (int64_t{v} * lanes_ + column) * from_.col_stride);
          square.push_back(b_.CreateAlignedLoad(type_, float_at(b_, start, k), llvm::Align(4)));
        }
        square = emit_transpose(b_, std::move(square));
        for (int row = 0; row < lanes_; ++row) {
          b_.CreateAlignedStore(square[row], target(b_.CreateAdd(k, i64(b_, row)), int64_t{v} * lanes_),
                                llvm::Align(4));
        }
      }
    });
  }

  void copy_numbers(int64_t first) {
    Value* columns =
        left_ ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left_, i64(b_, width())) : i64(b_, width());
    emit_for(b_, i64(b_, first), i64(b_, k_), 1, [&](Value* k) {
      Value* row = float_at(b_, from_.first, b_.CreateMul(k, i64(b_, from_.row_stride)));
      if (left_) emit_copy(b_, lanes_, target(k, 0), nullptr, i64(b_, width()));
      emit_for(b_, i64(b_, 0), columns, 1, [&](Value* column) {
        Value* number = b_.CreateLoad(b_.getFloatTy(),
                                      float_at(b_, row, b_.CreateMul(column, i64(b_, from_.col_stride))));
        b_.CreateStore(number, float_at(b_, target(k, 0), column));
      });
    });
  }

  llvm::IRBuilder<>& b_;
  const PanelSource& from_;
  const int64_t k_;
  const int lanes_, vectors_;
  Value* left_;
  Value* to_;
  llvm::FixedVectorType* type_;
};

}  // namespace

// log2(lanes) rounds of interleaving vector i with vector i + lanes/2.
std::vector<Value*> emit_transpose(llvm::IRBuilder<>& b, std::vector<Value*> rows) {
  const int lanes = static_cast<int>(rows.size()), half = lanes / 2;
  llvm::SmallVector<int, 16> low, high;
  for (int i = 0; i < half; ++i) {
    low.append({i, lanes + i});
    high.append({half + i, lanes + half + i});
  }
  for (int round = 1; round < lanes; round *= 2) {
    std::vector<Value*> next;
    for (int i = 0; i < half; ++i) {
      Value* x = rows[i];
      Value* y = rows[i + half];
      next.push_back(b.CreateShuffleVector(x, y, low));
      next.push_back(b.CreateShuffleVector(x, y, high));
    }
    rows = std::move(next);
  }
  return rows;
}

void emit_pack_panel(llvm::IRBuilder<>& b, const PanelSource& from, int64_t k, int lanes, int vectors,
                     Value* columns_left, Value* to) {
  PanelPacker(b, from, k, lanes, vectors, columns_left, to).emit();
}

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/gemm/emit_depthwise.cpp
// depthwise ConvKernel -> LLVM IR; see emit_depthwise.h
#include "codegen/cpu/gemm/emit_depthwise.h"

#include <algorithm>

#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/gemm/pack.h"
#include "codegen/cpu/gemm/tile_function.h"
#include "support/error.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;

constexpr size_t kMostEdgeTiles = 8;

/// Neighbouring tiles that read the same taps: `count` tiles of `columns` outputs from output column `first`
/// on.
struct TileRun {
  int64_t first = 0;
  int64_t count = 0;
  int64_t columns = 0;
  std::vector<bool> taps;  // [column * kernel_w + kw]: inside the image
  llvm::Function* whole = nullptr;
  llvm::Function* tail = nullptr;  // channels that do not fill a vector
};

std::vector<TileRun> find_runs(const ConvKernel& c) {
  const int64_t step = depthwise_columns(c);
  std::vector<TileRun> runs;
  for (int64_t first = 0; first < c.out_width(); first += step) {
    TileRun run{first, 1, std::min(step, c.out_width() - first), {}, nullptr, nullptr};
    for (int64_t column = 0; column < run.columns; ++column) {
      for (int64_t kw = 0; kw < c.kernel_w; ++kw) {
        const int64_t x = (first + column) * c.stride_w + kw * c.dilation_w - c.pad_w;
        run.taps.push_back(x >= 0 && x < c.width);
      }
    }
    if (!runs.empty() && runs.back().columns == run.columns && runs.back().taps == run.taps) {
      ++runs.back().count;
    } else {
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

class DepthwiseEmitter {
 public:
  DepthwiseEmitter(llvm::Module& module, const ConvKernel& kernel, int lanes, const Epilogue& epilogue)
      : module_(module),
        c_(kernel),
        lanes_(lanes),
        epilogue_(epilogue),
        b_(module.getContext()),
        vector_(llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(lanes))),
        padded_channels_(round_up(kernel.in_channels, lanes)),
        whole_channels_(kernel.in_channels / lanes * lanes),
        runs_(find_runs(kernel)) {}

  void emit() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const std::string name = c_.name + ".columns" + std::to_string(i);
      if (whole_channels_) runs_[i].whole = emit_tile(runs_[i], name, false);
      if (whole_channels_ < c_.in_channels) runs_[i].tail = emit_tile(runs_[i], name + ".tail", true);
    }
    args_ = begin_kernel(module_, b_, c_.name);
    x_ = load_buffer(b_, args_.buffers, c_.x);
    w_ = load_buffer(b_, args_.buffers, c_.w);
    emit_for(b_, args_.begin, args_.end, 1, [&](Value* task) { emit_row(task); });
    b_.CreateRetVoid();
  }

 private:
  /// void tile(x, w, buffers, syms, kernel rows, output row, first channel, channels): x and w at the first
  /// kernel row that is inside the image.
  llvm::Function* emit_tile(const TileRun& run, const std::string& name, bool tail) {
    llvm::IRBuilderBase::InsertPointGuard guard(b_);
    llvm::Type* pointer = b_.getPtrTy();
    llvm::Type* integer = b_.getInt64Ty();
    llvm::Function* function = begin_tile(
        module_, b_, name, {pointer, pointer, pointer, pointer, integer, integer, integer, integer});
    Value* first = function->getArg(6);
    emit_for(b_, first, b_.CreateAdd(first, function->getArg(7)), lanes_, [&](Value* channel) {
      Value* left = tail ? function->getArg(7) : nullptr;
      Value* mask = tail ? lane_mask(b_, lanes_, left) : nullptr;
      std::vector<Value*> sums =
          emit_taps(run, number_at(b_, c_.pixels, function->getArg(0), channel),
                    float_at(b_, function->getArg(1), channel), function->getArg(4), mask);
      emit_epilogue(b_, epilogue_, sums, 1,
                    {function->getArg(2), function->getArg(3), function->getArg(5), channel, left});
    });
    b_.CreateRetVoid();
    return function;
  }

  /// The loop over kernel rows; none at all leaves the sums zero.
  std::vector<Value*> emit_taps(const TileRun& run, Value* x, Value* w, Value* rows, Value* mask) {
    llvm::BasicBlock* before = b_.GetInsertBlock();
    llvm::Function* function = before->getParent();
    auto* head = llvm::BasicBlock::Create(b_.getContext(), "rows", function);
    auto* body = llvm::BasicBlock::Create(b_.getContext(), "row", function);
    auto* after = llvm::BasicBlock::Create(b_.getContext(), "rows.end", function);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    auto phi = [&](llvm::Type* type, Value* first) {
      llvm::PHINode* node = b_.CreatePHI(type, 2);
      node->addIncoming(first, before);
      return node;
    };
    llvm::PHINode* left = phi(b_.getInt64Ty(), rows);
    llvm::PHINode* x_now = phi(b_.getPtrTy(), x);
    llvm::PHINode* w_now = phi(b_.getPtrTy(), w);
    std::vector<llvm::PHINode*> carried;
    for (int64_t i = 0; i < run.columns; ++i)
      carried.push_back(phi(vector_, llvm::Constant::getNullValue(vector_)));
    b_.CreateCondBr(b_.CreateICmpSGT(left, i64(b_, 0)), body, after);

    b_.SetInsertPoint(body);
    std::vector<Value*> sums(carried.begin(), carried.end());
    emit_kernel_row(run, x_now, w_now, mask, sums);
    left->addIncoming(b_.CreateSub(left, i64(b_, 1)), body);
    x_now->addIncoming(image_at(x_now, c_.dilation_h * c_.x_row), body);
    w_now->addIncoming(float_at(b_, w_now, c_.kernel_w * padded_channels_), body);
    for (size_t i = 0; i < sums.size(); ++i) carried[i]->addIncoming(sums[i], body);
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
    return {carried.begin(), carried.end()};
  }

  void emit_kernel_row(const TileRun& run, Value* x, Value* w, Value* mask, std::vector<Value*>& sums) {
    std::vector<Value*> weights;
    for (int64_t kw = 0; kw < c_.kernel_w; ++kw) {
      weights.push_back(
          b_.CreateAlignedLoad(vector_, float_at(b_, w, kw * padded_channels_), llvm::Align(4)));
    }
    const int64_t span = (run.columns - 1) * c_.stride_w + (c_.kernel_w - 1) * c_.dilation_w + 1;
    for (int64_t position = 0; position < span; ++position) {
      Value* data = nullptr;
      for (int64_t column = 0; column < run.columns; ++column) {
        const int64_t tap = position - column * c_.stride_w;
        if (tap < 0 || tap % c_.dilation_w != 0 || tap / c_.dilation_w >= c_.kernel_w) continue;
        const int64_t kw = tap / c_.dilation_w;
        if (!run.taps[column * c_.kernel_w + kw]) continue;
        if (!data) data = load(image_at(x, position * c_.x_col), mask);
        Value*& sum = sums[column];
        sum = b_.CreateIntrinsic(vector_, llvm::Intrinsic::fmuladd, {data, weights[kw], sum});
      }
    }
  }

  Value* image_at(Value* base, int64_t numbers) { return number_at(b_, c_.pixels, base, i64(b_, numbers)); }
  Value* load(Value* address, Value* mask) {
    llvm::Type* type = vector_of(b_, c_.pixels, lanes_);
    const llvm::Align align(dtype_bytes(c_.pixels));
    Value* numbers = mask ? static_cast<Value*>(b_.CreateMaskedLoad(type, address, align, mask,
                                                                    llvm::Constant::getNullValue(type)))
                          : static_cast<Value*>(b_.CreateAlignedLoad(type, address, align));
    return emit_widened(b_, numbers, c_.pixels);
  }

  void emit_row(Value* task) {
    Value* y = b_.CreateURem(task, i64(b_, c_.out_height()));
    Value* image = b_.CreateUDiv(task, i64(b_, c_.out_height()));
    // Kernel rows [low, high) lie inside the image.
    Value* zero = i64(b_, 0);
    Value* start = b_.CreateSub(b_.CreateMul(y, i64(b_, c_.stride_h)), i64(b_, c_.pad_h));
    Value* low = ceil_div(maximum(b_, b_.CreateNeg(start), zero));
    Value* high =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, i64(b_, c_.kernel_h),
                                 ceil_div(maximum(b_, b_.CreateSub(i64(b_, c_.height), start), zero)));
    Value* x_row = b_.CreateAdd(start, b_.CreateMul(low, i64(b_, c_.dilation_h)));
    Value* x = number_at(b_, c_.pixels, x_, b_.CreateMul(image, i64(b_, c_.x_image)));
    x = number_at(b_, c_.pixels, x, b_.CreateMul(x_row, i64(b_, c_.x_row)));
    Value* w = float_at(b_, w_, b_.CreateMul(low, i64(b_, c_.kernel_w * padded_channels_)));
    Value* rows = b_.CreateSub(high, low);
    Value* first_pixel = b_.CreateMul(task, i64(b_, c_.out_width()));
    for (const TileRun& run : runs_) {
      emit_for(b_, zero, i64(b_, run.count), 1, [&](Value* tile) {
        Value* column = b_.CreateAdd(i64(b_, run.first), b_.CreateMul(tile, i64(b_, run.columns)));
        Value* x_col = b_.CreateSub(b_.CreateMul(column, i64(b_, c_.stride_w)), i64(b_, c_.pad_w));
        Value* x_tile = number_at(b_, c_.pixels, x, b_.CreateMul(x_col, i64(b_, c_.x_col)));
        Value* pixel = b_.CreateAdd(first_pixel, column);
        if (run.whole) {
          b_.CreateCall(run.whole,
                        {x_tile, w, args_.buffers, args_.syms, rows, pixel, zero, i64(b_, whole_channels_)});
        }
        if (run.tail) {
          b_.CreateCall(run.tail, {x_tile, w, args_.buffers, args_.syms, rows, pixel,
                                   i64(b_, whole_channels_), i64(b_, c_.in_channels - whole_channels_)});
        }
      });
    }
  }

  /// ceil(x / dilation_h) for x >= 0.
  Value* ceil_div(Value* x) {
    return b_.CreateUDiv(b_.CreateAdd(x, i64(b_, c_.dilation_h - 1)), i64(b_, c_.dilation_h));
  }

  llvm::Module& module_;
  const ConvKernel& c_;
  const int lanes_;
  const Epilogue& epilogue_;
  llvm::IRBuilder<> b_;
  llvm::FixedVectorType* vector_;
  const int64_t padded_channels_;
  const int64_t whole_channels_;
  std::vector<TileRun> runs_;
  KernelArgs args_{};
  Value* x_ = nullptr;
  Value* w_ = nullptr;
};

}  // namespace

void check_depthwise(const ConvKernel& kernel) {
  BOLT_CHECK(kernel.depthwise(), print(kernel), ": not depthwise");
  if (kernel.x_channel != 1)
    throw_unsupported("depthwise convolution of channels-first input: ", print(kernel));
  if (find_runs(kernel).size() > kMostEdgeTiles)
    throw_unsupported("padding of a depthwise convolution too wide: ", print(kernel));
}

void emit_depthwise(llvm::Module& module, const ConvKernel& kernel, int lanes, const Epilogue& epilogue) {
  verify(kernel);
  check_depthwise(kernel);
  DepthwiseEmitter(module, kernel, lanes, epilogue).emit();
}

}  // namespace bolt::codegen::cpu::gemm

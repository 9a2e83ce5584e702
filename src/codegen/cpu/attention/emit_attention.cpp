// codegen/cpu/attention/emit_attention.cpp
// AttentionKernel -> LLVM IR; see emit_attention.h for the order of the work
#include "codegen/cpu/attention/emit_attention.h"

#include <algorithm>
#include <optional>

#include "codegen/cpu/attention/emit_amx.h"
#include "codegen/cpu/attention/emit_mask.h"
#include "codegen/cpu/attention/emit_softmax.h"
#include "codegen/cpu/gemm/amx_tile.h"
#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/gemm/pack.h"
#include "codegen/cpu/gemm/pack_emit.h"
#include "codegen/cpu/gemm/tile_function.h"

namespace bolt::codegen::cpu::attention {
namespace {

using gemm::emit_for;
using gemm::emit_if;
using gemm::float_at;
using gemm::i64;
using gemm::load_buffer;
using gemm::maximum;
using gemm::minimum;
using gemm::reserve_floats;
using gemm::round_up;
using llvm::Value;

/// Tiles of one height, by that height.
using Tiles = std::vector<std::pair<int64_t, llvm::Function*>>;

/// Functions for a block of so many vectors of queries: blocks at the end may have fewer.
struct QueryPart {
  int vectors;
  llvm::Function* pack;
  llvm::Function* mask;  // null: none needed
  llvm::Function* softmax = nullptr;
  Tiles scores;  // tallest first
  // with matrix registers
  llvm::Function* matrix_scores = nullptr;
  llvm::Function* maximum = nullptr;  // null: the mask's
  llvm::Function* weights = nullptr;
  llvm::Function* values = nullptr;
};

/// Columns of the values that one tile computes.
struct Panel {
  int64_t column;
  int vectors;
  int last_lanes;  // of the last vector; 0: all
  Tiles values;    // tallest first
  Tiles finish;
};

class AttentionEmitter {
 public:
  AttentionEmitter(llvm::Module& module, const AttentionKernel& kernel, const AttentionSchedule& schedule,
                   const gemm::Epilogue& epilogue, const gemm::SizeEmitter& size)
      : module_(module),
        k_(kernel),
        s_(schedule),
        epilogue_(epilogue),
        size_(size),
        b_(module.getContext()),
        vector_(llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(schedule.lanes))),
        single_(single_block(kernel, schedule)),
        softmax_{schedule.lanes, schedule.width(),      masks() ? 1 : kernel.scale,
                 !single_,       kernel.empty_rows_nan, schedule.matrix_step > 0} {
    if (s_.matrix_step)
      amx_ = AmxAttention{s_.matrix_step, s_.width(), k_.depth, k_.value_depth, k_.v.row, block_keys(s_)};
  }

  void emit() {
    make_parts();
    make_panels();
    args_ = gemm::begin_kernel(module_, b_, k_.name);
    queries_ = size_(b_, args_.syms, k_.queries);
    keys_ = size_(b_, args_.syms, k_.keys);
    Value* blocks = size_(b_, args_.syms, ceildiv(k_.queries, s_.width()));
    queries_scratch_ = reserve_floats(b_, k_.depth * s_.width());
    statistics_ = reserve_floats(b_, Softmax::kStatistics * s_.width());
    if (!single_ || amx_) totals_ = reserve_floats(b_, s_.width() * total_row());
    if (amx_) {
      scores_ = float_at(b_, reserve_floats(b_, amx_->spare_scores() + amx_->scores()), amx_->spare_scores());
      weights_ = reserve_floats(b_, amx_->weights());
      packed_values_ = reserve_floats(b_, amx_->values());
      if (!k_.keys.is_const()) few_keys_ = reserve_floats(b_, AmxAttention::kRows * k_.depth);
      gemm::emit_amx_begin(b_, i64(b_, AmxAttention::kRows), s_.matrix_step);
    } else {
      scores_ = reserve_floats(b_, round_up(block_keys(s_), s_.lanes) * s_.width());
    }
    emit_for(b_, args_.begin, args_.end, 1, [&](Value* task) {
      locate(b_.CreateUDiv(task, blocks));
      emit_task(b_.CreateMul(b_.CreateURem(task, blocks), i64(b_, s_.width())));
    });
    if (amx_) gemm::emit_amx_end(b_);
    b_.CreateRetVoid();
  }

 private:
  int64_t total_row() const { return round_up(k_.value_depth, s_.lanes); }
  /// Is there anything to do to the scores before their maximum is known?
  bool masks() const { return k_.mask || k_.causal || k_.scale <= 0; }

  Value* load(Value* from) { return b_.CreateAlignedLoad(vector_, from, llvm::Align(4)); }
  void store(Value* data, Value* to) { b_.CreateAlignedStore(data, to, llvm::Align(4)); }
  Value* splat(Value* x) { return b_.CreateVectorSplat(static_cast<unsigned>(s_.lanes), x); }

  // ---- functions

  void make_parts() {
    if (!k_.queries.is_const()) {
      for (int v = s_.vectors; v > 0; v /= 2) parts_.push_back(part(v));
      return;
    }
    const int64_t rest = k_.queries.value() % s_.width();
    const int last = static_cast<int>((rest + s_.lanes - 1) / s_.lanes);
    if (k_.queries.value() >= s_.width()) parts_.push_back(part(s_.vectors));
    if (rest && (parts_.empty() || last != s_.vectors)) parts_.push_back(part(last));
  }

  QueryPart part(int vectors) {
    QueryPart p;
    p.vectors = vectors;
    const std::string suffix = std::to_string(vectors);
    p.pack = pack_function(k_.name + ".pack" + suffix, vectors);
    p.mask = masks() ? mask_function(k_.name + ".mask" + suffix, vectors) : nullptr;
    if (amx_) {
      p.matrix_scores = amx_->emit_scores(module_, k_.name + ".scores" + suffix, vectors);
      if (!p.mask) p.maximum = amx_->emit_maximum(module_, k_.name + ".maximum" + suffix, vectors);
      p.weights = amx_->emit_weights(module_, k_.name + ".weights" + suffix, vectors, softmax_);
      p.values = amx_->emit_values(module_, k_.name + ".values" + suffix, vectors, single_);
      return p;
    }
    p.softmax = softmax_function(k_.name + ".softmax" + suffix, vectors);
    auto add = [&](int64_t rows) { p.scores.push_back({rows, score_function(rows, vectors)}); };
    if (k_.keys.is_const()) {
      cut_ = gemm::cut_rows(k_.keys.value(), s_.key_rows);
      if (cut_.longer) add(cut_.height + 1);
      if (cut_.tiles > cut_.longer) add(cut_.height);
    } else {
      add(s_.key_rows);
      for (int64_t rows : {16, 8, 4, 2, 1})
        if (rows < s_.key_rows) add(rows);
    }
    return p;
  }

  void make_panels() {
    if (amx_) pack_values_ = amx_->emit_pack_values(module_, k_.name + ".pack_values");
    const int64_t width = int64_t{s_.value_vectors} * s_.lanes;
    for (int64_t column = 0; column < k_.value_depth; column += width) {
      const int64_t columns = std::min(width, k_.value_depth - column);
      Panel p{column,
              static_cast<int>((columns + s_.lanes - 1) / s_.lanes),
              static_cast<int>(columns % s_.lanes),
              {},
              {}};
      const Panel* same = panels_.empty() ? nullptr : &panels_.back();
      if (same && same->vectors == p.vectors && same->last_lanes == p.last_lanes) {
        p.values = same->values;
        p.finish = same->finish;
      } else {
        for (int64_t rows = s_.query_rows; rows > 0; rows /= 2) {
          if (!needs_rows(rows)) continue;
          if (!amx_) p.values.push_back({rows, value_function(rows, p)});
          if (!single_ || amx_) p.finish.push_back({rows, finish_function(rows, p)});
        }
      }
      panels_.push_back(std::move(p));
    }
  }
  /// Do blocks of queries have tiles of this height? Blocks are whole but for the last.
  bool needs_rows(int64_t rows) const {
    if (!k_.queries.is_const()) return true;
    if (rows == s_.query_rows) return k_.queries.value() >= rows;
    return (k_.queries.value() % s_.width() & rows) != 0;
  }

  /// void pack(const float* q, int64_t queries): the block of Q, transposed
  llvm::Function* pack_function(const std::string& name, int vectors) {
    llvm::Function* f = gemm::begin_tile(module_, b_, name, {b_.getPtrTy(), b_.getInt64Ty(), b_.getPtrTy()});
    Value *from = f->getArg(0), *last = b_.CreateSub(f->getArg(1), i64(b_, 1)), *to = f->getArg(2);
    for (int v = 0; v < vectors; ++v) {
      std::vector<Value*> rows;
      for (int i = 0; i < s_.lanes; ++i)
        rows.push_back(float_at(
            b_, from, b_.CreateMul(minimum(b_, i64(b_, v * s_.lanes + i), last), i64(b_, k_.q.row))));
      auto place = [&](Value* d) {
        return float_at(b_, to, b_.CreateAdd(b_.CreateMul(d, i64(b_, s_.width())), i64(b_, v * s_.lanes)));
      };
      if (k_.q.col == 1) {
        pack_squares(rows, place);
      } else {
        Value* addresses =
            llvm::PoisonValue::get(llvm::FixedVectorType::get(b_.getPtrTy(), vector_->getNumElements()));
        for (size_t i = 0; i < rows.size(); ++i) addresses = b_.CreateInsertElement(addresses, rows[i], i);
        emit_for(b_, i64(b_, 0), i64(b_, k_.depth), 1, [&](Value* d) {
          Value* at = b_.CreateGEP(b_.getFloatTy(), addresses, splat(b_.CreateMul(d, i64(b_, k_.q.col))));
          store(b_.CreateMaskedGather(vector_, at, llvm::Align(4)), place(d));
        });
      }
    }
    b_.CreateRetVoid();
    return f;
  }
  void pack_squares(const std::vector<Value*>& rows, const std::function<Value*(Value*)>& place) {
    const int64_t whole = k_.depth / s_.lanes * s_.lanes, rest = k_.depth - whole;
    auto square = [&](Value* d, int64_t count) {
      std::vector<Value*> numbers;
      Value* mask = count < s_.lanes ? gemm::lane_mask(b_, s_.lanes, i64(b_, count)) : nullptr;
      for (Value* row : rows) {
        Value* at = float_at(b_, row, d);
        numbers.push_back(mask ? b_.CreateMaskedLoad(vector_, at, llvm::Align(4), mask,
                                                     llvm::Constant::getNullValue(vector_))
                               : load(at));
      }
      numbers = gemm::emit_transpose(b_, std::move(numbers));
      for (int64_t i = 0; i < count; ++i) store(numbers[i], place(b_.CreateAdd(d, i64(b_, i))));
    };
    if (whole) emit_for(b_, i64(b_, 0), i64(b_, whole), s_.lanes, [&](Value* d) { square(d, s_.lanes); });
    if (rest) square(i64(b_, whole), rest);
  }

  /// void scores(const float* k, const float* packed_queries, float* scores, float* maximum)
  llvm::Function* score_function(int64_t rows, int vectors) {
    llvm::Type* pointer = b_.getPtrTy();
    llvm::Function* f = gemm::begin_tile(
        module_, b_, k_.name + ".scores" + std::to_string(rows) + "x" + std::to_string(vectors),
        {pointer, pointer, pointer, pointer});
    gemm::TileShape shape;
    shape.vectors = vectors;
    shape.lanes = s_.lanes;
    shape.pairs = k_.pairs;
    shape.k = {{k_.depth, k_.k.col}};
    shape.b_step = s_.width();
    for (int64_t r = 0; r < rows; ++r) shape.row_offsets.push_back(r * k_.k.row);
    const std::vector<Value*> sums = gemm::emit_tile_product(b_, shape, f->getArg(0), f->getArg(1));
    for (int v = 0; v < vectors; ++v) {
      Value* at = float_at(b_, f->getArg(3), v * s_.lanes);
      Value* most = masks() ? nullptr : load(at);
      for (int64_t r = 0; r < rows; ++r) {
        Value* sum = sums[r * vectors + v];
        store(sum, float_at(b_, f->getArg(2), r * s_.width() + v * s_.lanes));
        if (most) most = Softmax::larger(b_, sum, most);
      }
      if (most) store(most, at);
    }
    b_.CreateRetVoid();
    return f;
  }

  llvm::Function* mask_function(const std::string& name, int vectors) {
    MaskShape shape{s_.lanes, s_.width(), vectors, k_.scale, k_.causal, std::nullopt};
    if (k_.mask) shape.mask = {k_.mask->row, k_.mask->col, k_.mask->boolean, k_.pairs};
    return emit_mask_function(module_, name, shape);
  }
  llvm::Function* softmax_function(const std::string& name, int vectors) {
    return softmax_.emit_function(module_, name, vectors);
  }

  /// Several blocks: void values(const float* p, const float* v, int64_t keys, const float* factor, float*
  /// totals). One block: ... const float* factor, void* const* buffers, const int64_t* syms, int64_t row,
  /// int64_t column)
  llvm::Function* value_function(int64_t rows, const Panel& panel) {
    llvm::Type *pointer = b_.getPtrTy(), *integer = b_.getInt64Ty();
    std::vector<llvm::Type*> types{pointer, pointer, integer, pointer, pointer};
    if (single_) types.insert(types.end(), {pointer, integer, integer});
    llvm::Function* f = gemm::begin_tile(module_, b_, tile_name(".values", rows, panel), types);
    gemm::TileShape shape;
    shape.vectors = panel.vectors;
    shape.lanes = s_.lanes;
    shape.last_lanes = panel.last_lanes;
    if (k_.pairs) shape.b = DType::BF16;
    shape.k = {{1, s_.width()}};
    shape.b_step = k_.v.row;
    for (int64_t r = 0; r < rows; ++r) shape.row_offsets.push_back(r);
    std::vector<Value*> sums = gemm::emit_tile_product(b_, shape, f->getArg(0), f->getArg(1), f->getArg(2));
    for (int64_t r = 0; r < rows; ++r) {
      Value* factor = row_factor(f->getArg(3), r);
      for (int v = 0; v < panel.vectors; ++v) {
        Value*& sum = sums[r * panel.vectors + v];
        if (single_) {
          sum = b_.CreateFMul(sum, factor);
          continue;
        }
        Value* total = float_at(b_, f->getArg(4), r * total_row() + v * s_.lanes);
        store(b_.CreateIntrinsic(vector_, llvm::Intrinsic::fmuladd, {load(total), factor, sum}), total);
      }
    }
    if (single_) finish(panel, sums, {f->getArg(4), f->getArg(5), f->getArg(6), f->getArg(7), nullptr});
    b_.CreateRetVoid();
    return f;
  }

  /// void finish(const float* totals, const float* factor, void* const* buffers, const int64_t* syms, int64_t
  /// row, int64_t column)
  llvm::Function* finish_function(int64_t rows, const Panel& panel) {
    llvm::Type *pointer = b_.getPtrTy(), *integer = b_.getInt64Ty();
    llvm::Function* f = gemm::begin_tile(module_, b_, tile_name(".finish", rows, panel),
                                         {pointer, pointer, pointer, pointer, integer, integer});
    std::vector<Value*> sums;
    for (int64_t r = 0; r < rows; ++r) {
      Value* factor = row_factor(f->getArg(1), r);
      for (int v = 0; v < panel.vectors; ++v)
        sums.push_back(
            b_.CreateFMul(load(float_at(b_, f->getArg(0), r * total_row() + v * s_.lanes)), factor));
    }
    finish(panel, sums, {f->getArg(2), f->getArg(3), f->getArg(4), f->getArg(5), nullptr});
    b_.CreateRetVoid();
    return f;
  }

  std::string tile_name(const char* what, int64_t rows, const Panel& panel) const {
    return k_.name + what + std::to_string(rows) + "x" + std::to_string(panel.vectors) + "." +
           std::to_string(panel.last_lanes);
  }
  Value* row_factor(Value* factors, int64_t row) {
    return splat(b_.CreateAlignedLoad(b_.getFloatTy(), float_at(b_, factors, row), llvm::Align(4)));
  }
  void finish(const Panel& panel, const std::vector<Value*>& sums, gemm::TileSite site) {
    if (panel.last_lanes) site.columns_left = i64(b_, (panel.vectors - 1) * s_.lanes + panel.last_lanes);
    gemm::emit_epilogue(b_, epilogue_, sums, panel.vectors, site);
  }

  // ---- a task

  /// Pointers of this head's matrices.
  void locate(Value* head) {
    head_ = head;
    q_ = load_buffer(b_, args_.buffers, k_.q.buffer);
    key_ = load_buffer(b_, args_.buffers, k_.k.buffer);
    value_ = load_buffer(b_, args_.buffers, k_.v.buffer);
    mask_ = k_.mask ? load_buffer(b_, args_.buffers, k_.mask->buffer) : nullptr;
    Value* rest = head;
    for (auto dim = k_.lead.rbegin(); dim != k_.lead.rend(); ++dim) {
      Value* size = size_(b_, args_.syms, dim->size);
      Value* index = b_.CreateURem(rest, size);
      rest = b_.CreateUDiv(rest, size);
      auto along = [&](Value* from, Sym stride, llvm::Type* element) {
        return b_.CreateGEP(element, from, b_.CreateMul(index, size_(b_, args_.syms, stride)));
      };
      q_ = along(q_, dim->q, b_.getFloatTy());
      key_ = along(key_, dim->k, b_.getFloatTy());
      value_ = along(value_, dim->v, value_element());
      if (mask_) mask_ = along(mask_, dim->mask, mask_element());
    }
    if (amx_) locate_keys();
  }
  /// Matrix registers read 16 keys at least: fewer are copied.
  void locate_keys() {
    key_bytes_ = i64(b_, k_.k.row * 4);
    if (!few_keys_) return;
    Value* few = b_.CreateICmpSLT(keys_, i64(b_, AmxAttention::kRows));
    emit_if(b_, few, [&] {
      emit_for(b_, i64(b_, 0), keys_, 1, [&](Value* key) {
        gemm::emit_copy(b_, s_.lanes, float_at(b_, few_keys_, b_.CreateMul(key, i64(b_, k_.depth))),
                        float_at(b_, key_, b_.CreateMul(key, i64(b_, k_.k.row))), i64(b_, k_.depth));
      });
      gemm::emit_copy(b_, s_.lanes, float_at(b_, few_keys_, b_.CreateMul(keys_, i64(b_, k_.depth))), nullptr,
                      b_.CreateMul(b_.CreateSub(i64(b_, AmxAttention::kRows), keys_), i64(b_, k_.depth)));
    });
    key_ = b_.CreateSelect(few, few_keys_, key_);
    key_bytes_ = b_.CreateSelect(few, i64(b_, k_.depth * 4), key_bytes_);
  }
  llvm::Type* value_element() { return k_.pairs ? b_.getInt16Ty() : b_.getFloatTy(); }
  llvm::Type* mask_element() { return k_.mask->boolean ? b_.getInt8Ty() : value_element(); }

  void emit_task(Value* first_query) {
    first_query_ = first_query;
    count_ = minimum(b_, b_.CreateSub(queries_, first_query), i64(b_, s_.width()));
    emit_part(0);
  }
  /// The part that has just enough vectors for this block.
  void emit_part(size_t part) {
    if (part + 1 == parts_.size()) return emit_block(parts_[part]);
    emit_if(
        b_, b_.CreateICmpSGT(count_, i64(b_, int64_t{parts_[part + 1].vectors} * s_.lanes)),
        [&] { emit_block(parts_[part]); }, [&] { emit_part(part + 1); });
  }

  void emit_block(const QueryPart& part) {
    b_.CreateCall(part.pack, {float_at(b_, q_, b_.CreateMul(first_query_, i64(b_, k_.q.row))), count_,
                              queries_scratch_});
    softmax_.emit_begin(b_, part.vectors, statistics_);
    // Matrix registers have rows for queries that do not exist, too.
    Value* rows = amx_ ? i64(b_, int64_t{part.vectors} * s_.lanes) : count_;
    if (!single_) gemm::emit_copy(b_, s_.lanes, totals_, nullptr, b_.CreateMul(rows, i64(b_, total_row())));
    Value* end = k_.causal ? minimum(b_, keys_, b_.CreateAdd(first_query_, count_)) : keys_;
    k_.keys.is_const() && !amx_ ? blocks_of_known_keys(part, end) : blocks_of_keys(part, end);
    if (single_ && !amx_) return;
    if (!single_) softmax_.emit_inverse(b_, part.vectors, statistics_);
    for (const Panel& panel : panels_)
      emit_rows(panel.finish, count_, i64(b_, 0), [&](llvm::Function* tile, Value* row) {
        b_.CreateCall(tile, {total_at(row, panel), float_at(b_, factors(), row), args_.buffers, args_.syms,
                             result_row(row), i64(b_, panel.column)});
      });
  }

  /// Keys cut into tiles of two heights; blocks are whole numbers of tiles. The causal rule rounds up to
  /// them.
  void blocks_of_known_keys(const QueryPart& part, Value* end) {
    Value* tiles = i64(b_, cut_.tiles);
    if (k_.causal)
      tiles = minimum(b_, tiles,
                      b_.CreateUDiv(b_.CreateAdd(end, i64(b_, cut_.height - 1)), i64(b_, cut_.height)));
    Value* longer = i64(b_, cut_.longer);
    emit_for(b_, i64(b_, 0), tiles, s_.key_block, [&](Value* first) {
      Value* last = minimum(b_, b_.CreateAdd(first, i64(b_, s_.key_block)), tiles);
      Value* key = key_of(first);
      if (cut_.longer)
        emit_for(b_, first, minimum(b_, last, longer), 1, [&](Value* t) {
          emit_scores(part.scores.front().second, b_.CreateMul(t, i64(b_, cut_.height + 1)), key);
        });
      if (cut_.tiles > cut_.longer)
        emit_for(b_, maximum(b_, first, longer), last, 1,
                 [&](Value* t) { emit_scores(part.scores.back().second, key_of(t), key); });
      emit_weights_and_values(part, key, b_.CreateSub(key_of(last), key));
    });
  }
  Value* key_of(Value* tile) {
    return b_.CreateAdd(b_.CreateMul(tile, i64(b_, cut_.height)), minimum(b_, tile, i64(b_, cut_.longer)));
  }

  void blocks_of_keys(const QueryPart& part, Value* end) {
    emit_for(b_, i64(b_, 0), end, block_keys(s_), [&](Value* key) {
      Value* count = minimum(b_, b_.CreateSub(end, key), i64(b_, block_keys(s_)));
      if (amx_)
        emit_matrix_scores(part, key, count);
      else
        emit_rows(part.scores, count, key,
                  [&](llvm::Function* tile, Value* at) { emit_scores(tile, at, key); });
      emit_weights_and_values(part, key, count);
    });
  }

  /// body(tile, first row) over `count` rows from `first` on: the tallest tile, then smaller ones, each half
  /// of the one before.
  void emit_rows(const Tiles& tiles, Value* count, Value* first,
                 const std::function<void(llvm::Function*, Value*)>& body) {
    Value* height = i64(b_, tiles.front().first);
    Value* whole = b_.CreateMul(b_.CreateUDiv(count, height), height);
    Value* row = b_.CreateAdd(first, whole);
    Value* left = b_.CreateSub(count, whole);
    emit_for(b_, first, row, tiles.front().first, [&](Value* at) { body(tiles.front().second, at); });
    for (size_t i = 1; i < tiles.size(); ++i) {
      Value* part = b_.CreateAnd(left, i64(b_, tiles[i].first));
      emit_if(b_, b_.CreateICmpNE(part, i64(b_, 0)), [&] { body(tiles[i].second, row); });
      row = b_.CreateAdd(row, part);
    }
  }

  void emit_scores(llvm::Function* tile, Value* key, Value* first_key) {
    Value* row = b_.CreateMul(b_.CreateSub(key, first_key), i64(b_, s_.width()));
    b_.CreateCall(tile, {float_at(b_, key_, b_.CreateMul(key, i64(b_, k_.k.row))), queries_scratch_,
                         float_at(b_, scores_, row), softmax_.maximum(b_, statistics_)});
  }

  void emit_matrix_scores(const QueryPart& part, Value* key, Value* count) {
    Value* keys = b_.CreateGEP(b_.getInt8Ty(), key_, b_.CreateMul(key, key_bytes_));
    b_.CreateCall(part.matrix_scores, {keys, key_bytes_, queries_scratch_, scores_, count, key});
    if (part.maximum) b_.CreateCall(part.maximum, {scores_, count, softmax_.maximum(b_, statistics_)});
  }

  void emit_weights_and_values(const QueryPart& part, Value* key, Value* count) {
    if (part.mask) {
      Value *corner = llvm::ConstantPointerNull::get(b_.getPtrTy()), *row = i64(b_, 0), *col = i64(b_, 0);
      if (k_.mask) {
        row = size_(b_, args_.syms, k_.mask->row);
        col = size_(b_, args_.syms, k_.mask->col);
        corner = b_.CreateGEP(mask_element(), mask_,
                              b_.CreateAdd(b_.CreateMul(first_query_, row), b_.CreateMul(key, col)));
      }
      b_.CreateCall(part.mask, {scores_, count, corner, count_, b_.CreateSub(first_query_, key),
                                softmax_.maximum(b_, statistics_), row, col});
    }
    Value* values = b_.CreateMul(key, i64(b_, k_.v.row));
    if (amx_) {
      b_.CreateCall(part.weights, {scores_, count, statistics_, weights_});
      b_.CreateCall(pack_values_, {b_.CreateGEP(value_element(), value_, values), count, packed_values_});
      b_.CreateCall(part.values, {weights_, packed_values_, count, factors(), totals_});
      return;
    }
    b_.CreateCall(part.softmax, {scores_, count, statistics_});
    for (const Panel& panel : panels_)
      emit_rows(panel.values, count_, i64(b_, 0), [&](llvm::Function* tile, Value* row) {
        std::vector<Value*> arguments{
            float_at(b_, scores_, row),
            b_.CreateGEP(value_element(), value_, b_.CreateAdd(values, i64(b_, panel.column))), count,
            float_at(b_, factors(), row)};
        if (single_)
          arguments.insert(arguments.end(),
                           {args_.buffers, args_.syms, result_row(row), i64(b_, panel.column)});
        else
          arguments.push_back(total_at(row, panel));
        b_.CreateCall(tile, arguments);
      });
  }

  Value* factors() { return softmax_.factor(b_, statistics_); }
  Value* total_at(Value* row, const Panel& panel) {
    return float_at(b_, totals_,
                    b_.CreateAdd(b_.CreateMul(row, i64(b_, total_row())), i64(b_, panel.column)));
  }
  Value* result_row(Value* row) {
    return b_.CreateAdd(b_.CreateMul(head_, queries_), b_.CreateAdd(first_query_, row));
  }

  llvm::Module& module_;
  const AttentionKernel& k_;
  const AttentionSchedule& s_;
  const gemm::Epilogue& epilogue_;
  const gemm::SizeEmitter& size_;
  llvm::IRBuilder<> b_;
  llvm::FixedVectorType* vector_;
  const bool single_;
  Softmax softmax_;

  std::optional<AmxAttention> amx_;
  gemm::RowCut cut_;  // of constant keys
  std::vector<QueryPart> parts_;
  std::vector<Panel> panels_;
  gemm::KernelArgs args_{};
  Value *queries_ = nullptr, *keys_ = nullptr;
  Value *queries_scratch_ = nullptr, *scores_ = nullptr, *statistics_ = nullptr, *totals_ = nullptr;
  // of matrix registers
  llvm::Function* pack_values_ = nullptr;
  Value *weights_ = nullptr, *packed_values_ = nullptr, *few_keys_ = nullptr, *key_bytes_ = nullptr;
  // of the task being emitted
  Value* head_ = nullptr;
  Value *q_ = nullptr, *key_ = nullptr, *value_ = nullptr, *mask_ = nullptr;
  Value* first_query_ = nullptr;
  Value* count_ = nullptr;  // queries of the block
};

}  // namespace

void emit_attention(llvm::Module& module, const AttentionKernel& kernel, const AttentionSchedule& schedule,
                    const gemm::Epilogue& epilogue, const gemm::SizeEmitter& size) {
  verify(kernel);
  AttentionEmitter(module, kernel, schedule, epilogue, size).emit();
}

}  // namespace bolt::codegen::cpu::attention

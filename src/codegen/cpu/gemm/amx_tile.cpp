// codegen/cpu/gemm/amx_tile.cpp
// tile of matrix registers -> LLVM IR; see amx_tile.h
//
// Registers are named by LLVM's intrinsics that take their numbers, so that none is ever spilled: 0 to 3 are
// sums, 4 and 5 rows of A, 6 and 7 columns of B.
#include "codegen/cpu/gemm/amx_tile.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "codegen/cpu/gemm/emit_util.h"
#include "codegen/cpu/gemm/schedule.h"

namespace bolt::codegen::cpu::gemm {
namespace {

using llvm::Value;
using llvm::Intrinsic::ID;

constexpr int kSums = 0, kRows = 4, kColumns = 6;
constexpr int kRowBytes = 64;

class ProductEmitter {
 public:
  ProductEmitter(llvm::IRBuilder<>& b, const AmxProduct& product) : b_(b), p_(product) {}

  void emit() {
    auto load = [&] {
      each_sum([&](int number, Value* at) {
        memory(llvm::Intrinsic::x86_tileloadd64, number, at, bytes(p_.sum_width));
      });
    };
    auto zero = [&] {
      each_sum(
          [&](int number, Value*) { b_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {tile(number)}); });
    };
    if (p_.adds)
      emit_if(b_, p_.adds, load, zero);
    else
      zero();
    emit_level(0, i64(b_, 0), p_.b);
    each_sum([&](int number, Value* at) {
      memory(llvm::Intrinsic::x86_tilestored64, number, at, bytes(p_.sum_width));
    });
  }

 private:
  int sum_of(int r, int v) const { return kSums + r * p_.vectors + v; }
  template <class Body>
  void each_sum(const Body& body) {
    for (int r = 0; r < p_.registers; ++r)
      for (int v = 0; v < p_.vectors; ++v)
        body(sum_of(r, v), float_at(b_, p_.sums[r], int64_t{v} * kMatrixRows));
  }

  /// Returns B behind what it multiplied.
  Value* emit_level(size_t level, Value* a_offset, Value* columns) {
    const KLevel& loop = p_.k[level];
    const bool innermost = level + 1 == p_.k.size();
    auto body = [&](Value* i, std::vector<Value*> now) -> std::vector<Value*> {
      Value* offset = b_.CreateAdd(a_offset, b_.CreateMul(i, i64(b_, loop.a_step)));
      if (!innermost) return {emit_level(level + 1, offset, now[0])};
      emit_step(offset, now[0]);
      return {float_at(b_, now[0], p_.step * p_.b_width)};
    };
    Value* count = p_.words ? p_.words : i64(b_, loop.count);
    return emit_fold(b_, i64(b_, 0), count, innermost ? p_.step : 1, {columns}, body)[0];
  }

  void emit_step(Value* a_offset, Value* columns) {
    for (int v = 0; v < p_.vectors; ++v)
      memory(llvm::Intrinsic::x86_tileloadd64, kColumns + v, float_at(b_, columns, int64_t{v} * kMatrixRows),
             bytes(p_.b_width));
    for (int r = 0; r < p_.registers; ++r) {
      memory(llvm::Intrinsic::x86_tileloadd64, kRows + r, float_at(b_, p_.a[r], a_offset), p_.row_bytes);
      for (int v = 0; v < p_.vectors; ++v)
        b_.CreateIntrinsic(llvm::Intrinsic::x86_tdpbf16ps, {},
                           {tile(sum_of(r, v)), tile(kRows + r), tile(kColumns + v)});
    }
  }

  Value* tile(int number) { return b_.getInt8(static_cast<uint8_t>(number)); }
  Value* bytes(int64_t words) { return i64(b_, words * 4); }
  void memory(ID id, int number, Value* at, Value* stride) {
    b_.CreateIntrinsic(id, {}, {tile(number), at, stride});
  }

  llvm::IRBuilder<>& b_;
  const AmxProduct& p_;
};

/// Sums of a tile on the stack, row by row, and how many rows of them count.
struct Sums {
  Value* first;
  Value* rows;
};

Sums emit_tile(llvm::IRBuilder<>& b, const AmxShape& shape, llvm::Function* f) {
  Value *a = f->getArg(0), *left = f->getArg(7), *height = f->getArg(8);
  const int64_t width = int64_t{shape.vectors} * kMatrixRows;
  AmxProduct product{.registers = shape.registers,
                     .vectors = shape.vectors,
                     .step = shape.step,
                     .row_bytes = i64(b, shape.row_stride * 4),
                     .b = f->getArg(1),
                     .b_width = width,
                     .k = shape.k,
                     .sum_width = width};
  Value* sums = nullptr;
  if (shape.blocks) {
    Value* first = f->getArg(10);
    sums = f->getArg(9);
    a = float_at(b, a, first);
    product.b = float_at(b, product.b, b.CreateMul(first, i64(b, width)));
    product.words = f->getArg(11);
    product.adds = b.CreateICmpNE(first, i64(b, 0));
  } else {
    // A register that begins in front of the tile's first row leaves dropped sums there.
    const int64_t in_front = shape.registers == 1 ? kMatrixRows : 0;
    sums =
        float_at(b, reserve_floats(b, (in_front + shape.registers * kMatrixRows) * width), in_front * width);
  }
  for (int r = 0; r < shape.registers; ++r) {
    Value* first = shape.second ? b.CreateMul(height, i64(b, r))
                                : minimum(b, i64(b, int64_t{r} * kMatrixRows), b.CreateSub(left, height));
    product.a[r] = shape.second ? float_at(b, a, r * shape.second)
                                : float_at(b, a, b.CreateMul(first, i64(b, shape.row_stride)));
    product.sums[r] = float_at(b, sums, b.CreateMul(first, i64(b, width)));
  }
  emit_amx_product(b, product);
  Value* rows = shape.second ? b.CreateMul(height, i64(b, shape.registers))
                             : minimum(b, left, i64(b, int64_t{shape.registers} * kMatrixRows));
  return {sums, rows};
}

}  // namespace

Value* emit_amx_begin(llvm::IRBuilder<>& b, Value* rows, int step) {
  // Palette 1; bytes of a row of each register from 16 on, two bytes each; rows from 48 on.
  std::vector<uint8_t> state(64, 0);
  state[0] = 1;
  for (int i = 0; i < 8; ++i) {
    const bool of_a = i == kRows || i == kRows + 1;
    state[16 + 2 * i] = static_cast<uint8_t>(of_a ? step * 4 : kRowBytes);
    if (i >= kColumns) state[48 + i] = static_cast<uint8_t>(step);
  }
  llvm::Constant* bytes = llvm::ConstantDataVector::get(b.getContext(), state);
  llvm::AllocaInst* slot = b.CreateAlloca(bytes->getType());
  slot->setAlignment(llvm::Align(64));
  b.CreateAlignedStore(bytes, slot, llvm::Align(64));
  Value* height = minimum(b, rows, i64(b, kMatrixRows));
  for (int i = 0; i < kColumns; ++i)
    b.CreateStore(b.CreateTrunc(height, b.getInt8Ty()),
                  b.CreateConstGEP1_64(b.getInt8Ty(), slot, static_cast<uint64_t>(48 + i)));
  b.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {slot});
  return height;
}

void emit_amx_product(llvm::IRBuilder<>& b, const AmxProduct& product) { ProductEmitter(b, product).emit(); }

void emit_amx_end(llvm::IRBuilder<>& b) { b.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {}); }

llvm::Function* emit_amx_tile_function(llvm::Module& module, const std::string& name, const AmxShape& shape,
                                       const Epilogue& epilogue, bool masked) {
  llvm::IRBuilder<> b(module.getContext());
  llvm::Type* pointer = b.getPtrTy();
  llvm::Type* integer = b.getInt64Ty();
  std::vector<llvm::Type*> types(4, pointer);
  types.insert(types.end(), 5, integer);
  if (shape.blocks) types.insert(types.end(), {pointer, integer, integer});
  llvm::Function* function = begin_tile(module, b, name, types);
  const Sums sums = emit_tile(b, shape, function);
  auto finish = [&] {
    emit_epilogue_of_memory(b, epilogue, sums.first, sums.rows, shape.vectors, kMatrixRows,
                            {function->getArg(2), function->getArg(3), function->getArg(4),
                             function->getArg(5), masked ? function->getArg(6) : nullptr});
  };
  if (shape.blocks) {
    Value* end = b.CreateAdd(function->getArg(10), function->getArg(11));
    emit_if(b, b.CreateICmpEQ(end, i64(b, shape.k[0].count)), finish);
  } else {
    finish();
  }
  b.CreateRetVoid();
  return function;
}

}  // namespace bolt::codegen::cpu::gemm

// codegen/cpu/ops.h
// One scalar operation, cast or reduction step of the Loops IR on values or vectors -> LLVM IR.
//
// How values are held: b8 as i1, bf16 and f16 as their 16 bits (only loads, stores and casts ever see them),
// the rest as themselves. In memory b8 is a byte. Vectors of any width; 1 lane is a plain scalar. Products
// and sums may be contracted to fma where loops::may_contract says so, and what a reduction adds up. Nothing
// else is relaxed: NaN, infinities and zeros behave as ops.def says.
#pragma once

#include "codegen/cpu/math.h"
#include "loops/kernel.h"

namespace bolt::codegen::cpu {

class Ops {
 public:
  using Value = llvm::Value*;
  Ops(Builder& b, const Target& target) : b_(b), target_(target), math_(b, target) {}

  llvm::Type* type(DType t, unsigned lanes) const;         // of a held value
  llvm::Type* memory_type(DType t, unsigned lanes) const;  // as it lies in memory
  Value from_memory(Value v, DType t) const;
  Value to_memory(Value v, DType t) const;
  /// `value` for floating types, `ivalue` for the rest.
  Value constant(DType t, double value, int64_t ivalue) const;
  Value splat(Value scalar, unsigned lanes) const;

  /// `operand` is the type of the value operands (for where: of the last two). `contract`: may_contract of
  /// the expression.
  Value apply(loops::ScalarOp op, DType operand, llvm::ArrayRef<Value> args, bool contract = false) const;
  Value cast(Value v, DType from, DType to) const;
  /// A float32 that is a number of the half type `to`: where nothing is rounded off, bits are cut off.
  Value narrowed(Value v, DType to) const;

  Value identity(loops::ReduceOp op, DType t) const;
  Value combine(loops::ReduceOp op, DType t, Value a, Value b) const;
  /// Arg reductions: does candidate value x replace y? NaN is largest for ArgMax and smallest for ArgMin.
  Value beats(loops::ReduceOp op, DType t, Value x, Value y) const;
  const Math& math() const { return math_; }
  const Target& target() const { return target_; }

 private:
  Value floating(loops::ScalarOp op, llvm::ArrayRef<Value> a) const;
  Value integral(loops::ScalarOp op, DType t, llvm::ArrayRef<Value> a) const;
  Value compare(loops::ScalarOp op, DType t, Value a, Value b) const;
  Value integer_divide(loops::ScalarOp op, bool is_signed, Value a, Value b) const;
  Value integer_power(Value base, Value exponent, bool is_signed) const;
  Value shift(bool left, bool is_signed, Value a, Value b) const;
  Value random(llvm::ArrayRef<Value> a) const;
  Value float_to_half(Value v, DType to) const;
  Value half_to_float(Value v, DType from) const;
  Value zero(Value like) const { return llvm::Constant::getNullValue(like->getType()); }
  Builder& b_;
  const Target& target_;
  Math math_;
};

}  // namespace bolt::codegen::cpu

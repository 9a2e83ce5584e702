// loops/kernel.h
// The Loops IR: one fused kernel as tensor expressions over one iteration space. What it computes, never how:
// vector lanes, threads, registers and sweeps are the Schedule's (codegen/cuda/schedule.h), machine code is
// codegen's.
//
//   kernel @softmax_0 (in %b0: f32, out %b1: f32) space [4096 d0, 512 d1 reduce] {
//     %0 = load b0[512*d0 + d1]
//     %1 = reduce max %0 over d1
//     %2 = sub %0, %1
//     %3 = exp %2
//     %4 = reduce sum %3 over d1
//     %5 = div %3, %4
//     store b1[512*d0 + d1] = %5
//   }
//
// One list of SSA expressions, in order. Every expression varies over a set of dimensions (a bit mask): a
// load over the dimensions in its index, an operation over the union of its operands', a reduce over its
// operand's less the reduced ones. A store of a value that varies over fewer dimensions than its index writes
// once per index. A value that is used after a reduction over the same dimension, as %0 above, is either
// computed again or kept: the schedule's choice. A dimension marked `reduce` is one some reduction runs over;
// it may also be an index of stores (softmax).
//
// Views, broadcasts, transposes, slices and reshapes are already index arithmetic here. Sizes and index
// coefficients are Sym: constants or symbols that the program passes at each call, so one kernel can serve
// all sizes. Loads with `mask` read only where mask is true and give `fill` elsewhere (pad, cat, tails): an
// address out of bounds is never touched. Indirect loads (embedding, gather) carry computed index terms: coef
// * value (an i64 expression). An index that came from the user goes through `check %index below %size`: the
// index itself where it lies in [0, size), else some number that does (size is at least 1), and the kernel
// reports it. Where a check's mask is false nothing is reported.
//
// A scan runs along one dimension, which is marked `reduce` too: each element is combined with all before it.
//
// `scatter sum b2[d1; %i * 64] = %v` combines what lies in memory with the value, `scatter last` replaces it.
// It is done at every point of the space, of points that meet in row-major order, and its buffer is not read
// by loads. Points that differ in a dimension which the index proper is linear in never meet.
//
// Reports: a kernel with checks gets one more pointer after its buffers, to an int64 that it sets to 1 when
// any check failed and leaves alone otherwise. Who runs the kernel raises; results are then meaningless.
//
// Dtypes: load gives the buffer's dtype; arithmetic is in compute types only (bf16/f16 are cast to f32 right
// after the load and rounded once before the store). b8 values are truth values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/dtype.h"
#include "support/export.h"
#include "support/sym.h"

namespace bolt::loops {

using ExprId = int;
constexpr ExprId kNone = -1;

/// The pointwise rows of the graph that are one operation here too; the others are expanded to these.
enum class ScalarOp : uint8_t {
#define BOLT_Scalar(name) name,
#define BOLT_Expanded(name)
#define BOLT_Cast(name)
#define BOLT_POINTWISE(name, operands, dtype, cost, form, promotion, aten, attrs) BOLT_##form(name)
#include "graph/pointwise.def"
#undef BOLT_POINTWISE
#undef BOLT_Scalar
#undef BOLT_Expanded
#undef BOLT_Cast
};

/// LogAddExp: of scans only.
enum class ReduceOp : uint8_t { Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin, LogAddExp };

enum class ExprKind : uint8_t {
  Const,   // value (double) or ivalue (integers, bool)
  Index,   // the integer `index` of loop variables, as an i64
  Load,    // buffer[index + sum gather] under mask
  Op,      // scalar
  Cast,    // args[0] to dtype
  Reduce,  // reduce_op over `reduce_dims` of args[0]; Arg*: gives the i64 position along the single reduced
           // dim
  Check,   // args[0] checked to lie below args[1]; both i64
  Acc,     // the accumulator of a contraction tile (GEMM and convolution epilogues only), at (row, col)
  Scan     // reduce_op over args[0] and all before it along the one dimension of `reduce_dims`
};

struct GatherTerm {
  ExprId value;  // an i64 expression
  Sym coef;      // elements
};

struct Expr {
  ExprKind kind;
  DType dtype;  // of the result
  ScalarOp op = ScalarOp::add;
  ReduceOp reduce_op = ReduceOp::Sum;
  std::vector<ExprId> args;  // Op, Cast, Reduce, Scan
  double value = 0;          // Const of floating dtype
  int64_t ivalue = 0;        // Const of integer dtype or bool
  int buffer = -1;           // Load
  Sym index;  // Load, Index: in elements; its symbols are loop variables dim(i) and size symbols
  std::vector<GatherTerm> gather;
  ExprId mask = kNone;       // Load, Check: b8 expression
  double fill = 0;           // Load under a false mask
  uint32_t reduce_dims = 0;  // Reduce, Scan: bit per dim
  uint32_t dims = 0;         // over which dimensions it varies; kept by Kernel::add
};

struct Dim {
  Sym size;
  bool reduce = false;
};

enum class BufferRole : uint8_t { In, Out, InOut };
struct Buffer {
  DType dtype;
  BufferRole role;
  std::string name;  // for dumps
};

/// What becomes of what lies where a store goes to.
enum class Into : uint8_t { Over, Last, Sum, Prod, Max, Min };
/// How the last four combine.
ReduceOp combiner_of(Into into);

struct Store {
  int buffer;
  Sym index;
  ExprId value;  // of the buffer's dtype
  std::vector<GatherTerm> gather;
  ExprId mask = kNone;     // store only where true
  Into into = Into::Over;  // all others are scatters

  bool scatters() const { return into != Into::Over; }
  bool combines() const { return scatters() && into != Into::Last; }
};

/// Calls `f` with every expression that an Expr or a Store takes. Where that is not const, f may put another
/// in its place.
template <typename Taker, typename F>
void each_operand(Taker& e, F&& f) {
  if constexpr (requires { e.args; })
    for (auto& a : e.args) f(a);
  else
    f(e.value);
  if (e.mask != kNone) f(e.mask);
  for (auto& g : e.gather) f(g.value);
}

struct BOLT_API Kernel {
  std::string name;       // readable and unique in its program: "add_layer_norm_3"
  std::vector<Dim> dims;  // outermost first, in the order of the output's memory
  std::vector<Buffer> buffers;
  std::vector<Expr> exprs;  // SSA order
  std::vector<Store> stores;
  Syms symbols;                      // size symbols passed at run time, in the order of the ABI's `syms`
  std::vector<std::string> sources;  // user lines it came from, for reports and errors

  static Sym dim(int i);  // the loop variable of dimension i; symbol named "d<i>"
  ExprId add(Expr e);     // computes `dims`; hash-conses equal pure expressions
  uint32_t varies(Sym index) const;
  /// The dimensions over which a store is done: those that anything of it varies over; all, of a scatter.
  uint32_t dims_of(const Store& st) const;
  /// The dimensions along which scatters may meet: two points that differ in others only do not.
  uint32_t met_along() const;
  bool has_scans() const;
  bool has_checks() const;
};

/// Do they compute the same, whatever they and their buffers are called? And a hash that is then the same.
bool same_code(const Kernel& a, const Kernel& b);
uint64_t hash_code(const Kernel& k);

BOLT_API std::string print(const Kernel& k);
BOLT_API Kernel parse_kernel(std::string_view text);
/// Throws Error(Internal) naming the expression. The list of invariants heads verify_kernel.cpp.
BOLT_API void verify(const Kernel& k);
/// Bytes read and written once each, and scalar operations: what the cost model and the reports count.
struct Traffic {
  Sym bytes, flops;
};
BOLT_API Traffic traffic(const Kernel& k);

}  // namespace bolt::loops

// codegen/cpu/emitter.h
// The emitter's state, shared by its files: emit.cpp (function, work items, sweeps), emit_loop.cpp (scopes
// and loops), emit_index.cpp (index arithmetic), emit_memory.cpp (loads and stores), emit_reduce.cpp
// (reductions), emit_scan.cpp (scans), emit_sweep.cpp (column reductions by whole rows).
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "codegen/cpu/emit.h"
#include "codegen/cpu/ops.h"
#include "support/error.h"

namespace bolt::codegen::cpu {

/// Neighbours are combined again and again, so that few of these wait for each other.
template <class Part, class Combine>
Part combined_as_tree(std::vector<Part> parts, const Combine& combine) {
  while (parts.size() > 1) {
    std::vector<Part> next;
    for (size_t i = 0; i + 1 < parts.size(); i += 2) next.push_back(combine(parts[i], parts[i + 1]));
    if (parts.size() % 2) next.push_back(parts.back());
    parts = std::move(next);
  }
  return parts[0];
}

class Emitter {
 public:
  using Value = llvm::Value*;
  using ExprId = loops::ExprId;
  Emitter(const loops::Kernel& kernel, const LoopSchedule& schedule, const LlvmMachine& machine,
          llvm::Module& module, const std::string& name);
  void run();

 private:
  // ---- scopes and loops (emit_loop.cpp)
  /// Which of the vectors (v) and tile indices (t) in flight.
  struct Sub {
    int v = 0, t = 0;
    auto operator<=>(const Sub&) const = default;
  };
  enum class KeyKind : uint8_t { Expr, HalfBits, Index, WideIndex, Pointer };
  struct Key {
    KeyKind kind;
    const void* node;  // of a Sym
    int64_t id;        // expression or buffer
    int v, t;
    auto operator<=>(const Key&) const = default;
  };
  struct Scope {
    llvm::Instruction* at;  // insert before this
    std::map<Key, Value> values;
  };
  /// A value and the depth of the scope it lives in.
  struct Placed {
    Value value = nullptr;
    int depth = 0;
  };
  /// How a dimension is open: its index in sub-vector 0, and how many of them there are.
  struct Open {
    Value index = nullptr;  // i64, null: not open
    int depth = 0;
    int count = 1;               // vectors (vec_dim) or indices (tile)
    bool lanes = false;          // index stands for `lanes` consecutive ones
    std::vector<Value> masks{};  // per vector, null where full; empty: all full
    Value last_lane = nullptr;   // i64, the last lane inside; null: all are
  };
  using Body = std::function<void()>;
  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  void at(int depth) { b_.SetInsertPoint(scopes_[depth].at); }
  void at_current() { at(depth()); }
  std::optional<Placed> find(const Key& key) const;
  Placed remember(const Key& key, Value value, int depth);
  /// One loop with a scope of its own; `body` gets the index. Bounds are i64 in the current scope.
  void loop(Value begin, Value end, int64_t step, const std::function<void(Value)>& body);
  /// From `begin`, `whole` steps' worth by `step`, then the rest by `rest_step`: the split is decided here
  /// when known.
  void split_loop(Value begin, Value count, int64_t step, int64_t rest_step,
                  const std::function<void(Value)>& main, const std::function<void(Value, Value)>& rest);
  /// Opens vec_dim over [begin, begin + count): whole steps of unroll vectors, then single masked ones.
  void vector_loop(Value begin, Value count, const Body& body);
  /// Opens `dim` over [begin, begin + count) in steps of `step`, then one by one.
  void scalar_loop(int dim, Value begin, Value count, int step, const Body& body);
  void open_whole_row();
  void with_open(int dim, Open open, const Body& body);
  Value lane_mask(Value remaining);
  int lanes_now() const;  // lanes of values that vary over vec_dim
  bool varies(uint32_t dims, int dim) const { return dim >= 0 && (dims >> dim & 1); }
  bool is_vector(uint32_t dims) const;  // over vec_dim while it is open as lanes
  Sub normal(uint32_t dims, Sub s) const;
  std::vector<Sub> subs(uint32_t dims) const;
  Value mask_of(Sub s) const;  // null: all lanes

  // ---- index arithmetic (emit_index.cpp)
  Value constant(int64_t v) { return b_.getInt64(static_cast<uint64_t>(v)); }
  uint32_t dims_of(Sym index) const;
  /// Value of an index at a sub-vector; a vector of lanes when it varies over them and `wide`.
  Placed index(Sym s, Sub sub, bool wide);
  Placed index_sum(Sym s, Sub sub, bool wide);
  Placed index_node(Sym s, Sub sub, bool wide);
  Placed symbol(Sym s, Sub sub, bool wide);
  Placed divide(SymOp op, Sym a, Sym b, Sub sub, bool wide);
  Value size(int dim);

  // ---- expressions
  Placed eval(ExprId id, Sub s);
  Placed compute(ExprId id, Sub s);
  Placed half_bits(ExprId id, DType t, Sub s);
  Placed wide(Placed p, int lanes);  // splat when scalar
  const loops::Expr& expr(ExprId id) const { return k_.exprs[id]; }
  Value kept_address(ExprId id, Sub s);
  Placed load_kept(ExprId id, Sub s);
  void store_kept(ExprId id, Sub s, Value value);
  bool is_kept(ExprId id) const;

  // ---- memory (emit_memory.cpp)
  struct Address {
    Value pointer = nullptr;  // of lane 0, or what lanes are apart from
    int depth = 0;
    Value apart = nullptr;  // elements, by lane; null: lanes lie side by side
    int64_t step = 0;       // from lane to lane, where that is known and lanes are apart
  };
  Address address(int buffer, Sym index, const std::vector<loops::GatherTerm>& gather, Sub s, bool vector);
  Placed base_pointer(int buffer, Sym index, Sub s);
  Placed lanes_apart(Sym stride);
  Value pointers(const Address& a, DType t);
  Value near_lanes(llvm::Type* type, DType t, const Address& a);
  Placed gather_sum(const std::vector<loops::GatherTerm>& gather, Sub s, bool want_wide);
  Placed check(const loops::Expr& e, Sub s);
  void report_misses();
  Placed load(const loops::Expr& e, Sub s);
  Placed load_scalar(const loops::Expr& e, const Address& a, Placed mask);
  Value fill_of(const loops::Expr& load, int lanes);
  llvm::AllocaInst* fill_slot(Value constant);
  Placed load_vector(const loops::Expr& e, const Address& a, Placed mask, Sub s);
  bool load_square(ExprId id);
  void fetch_squares_ahead();
  void prefetch(Value pointer);
  void store(const loops::Store& st, Sub s);
  bool interleaves(const loops::Store& st) const;
  void store_interleaved(const loops::Store& st, Sub s);
  uint32_t address_dims(const loops::Store& st) const;
  void combine(const loops::Store& st, const Address& a, Value value, Value mask);
  void combine_one(const loops::Store& st, Value pointer, Value value, Value mask);
  Value combined(const loops::Store& st, Value old, Value value) const;
  llvm::Align alignment(DType t) const { return llvm::Align(static_cast<uint64_t>(dtype_bytes(t))); }

  // ---- reductions (emit_reduce.cpp)
  struct Accumulator {
    ExprId id;
    int lanes = 1;  // of each slot
    std::map<Sub, llvm::AllocaInst*> slots, totals, positions;
    std::map<Sub, llvm::AllocaInst*> nans;  // of a floating Max or Min: bits of the lanes that met a NaN
  };
  Placed reduce(ExprId id, Sub s);
  void ancestors(ExprId id, std::vector<ExprId>* reduces) const;
  std::vector<ExprId> siblings(ExprId id, int depth);
  int reduce_depth(ExprId id);
  void emit_group(const std::vector<ExprId>& ids, int depth);
  Accumulator make_accumulator(ExprId id);
  void fetch_ahead();
  void reduce_loops(const std::vector<int>& dims, size_t level, std::vector<Accumulator>& accs);
  void innermost(int dim, std::vector<Accumulator>& accs);
  void accumulate(std::vector<Accumulator>& accs);
  void accumulate_one(Accumulator& acc, Sub s);
  llvm::Type* nan_bits(llvm::Type* values) const;
  void accumulate_extreme(Accumulator& acc, Sub s, Value x);
  void accumulate_position(Accumulator& acc, Sub s, Value x);
  void flush(std::vector<Accumulator>& accs);
  void finish(Accumulator& acc);
  struct Pair {
    Value value, position;
  };
  Pair better(const loops::Expr& e, Pair a, Pair b);
  Pair fold_lanes(const loops::Expr& e, Pair p);
  bool needs_blocks(const std::vector<ExprId>& ids) const;
  int accumulators_per_vector(int dim) const;
  llvm::AllocaInst* slot(llvm::Type* type);

  // ---- scans (emit_scan.cpp)
  void begin_scans();
  Placed scan(ExprId id, Sub s);
  Value along_lanes(const loops::Expr& e, DType t, Value x, Value before);
  Value with_lanes_before(loops::ReduceOp op, DType t, Value x, Value before);
  Value logs_along_lanes(DType t, Value x, Value before);
  DType running_type(const loops::Expr& e) const;

  // ---- function and work items (emit.cpp)
  struct Range {
    int dim = -1;
    Value begin = nullptr, count = nullptr;
  };
  /// The whole item of a column sweep (emit_sweep.cpp).
  void emit_sweep(const Range& block);
  void add_to_sweep(ExprId id, int v, const std::function<Value(ExprId, Sub)>& place);
  using Stores = std::vector<const loops::Store*>;
  void emit_items(Value begin, Value end);
  void emit_item(Value item);
  Range open_outer(const OuterDim& outer, Value index, bool single);
  void open_ranges(const Range& vector, const Range& tile);
  void emit_body();
  uint32_t dims_of(const loops::Store& st) const;
  void store_loops(const std::vector<int>& dims, size_t level, const Stores& stores);
  void emit_stores(const Stores& stores);
  std::vector<int> loop_order(uint32_t dims) const;  // vec_dim last

  const loops::Kernel& k_;
  const LoopSchedule& s_;
  llvm::LLVMContext& context_;
  llvm::Function* fn_;
  Builder b_;
  Ops ops_;
  std::vector<Scope> scopes_;
  std::vector<Open> open_;  // per dimension
  std::vector<Value> buffers_;
  std::map<const SymNode*, Value> symbols_;
  std::map<int, llvm::AllocaInst*> misses_;  // by lanes: bits of indices out of range, or'ed
  enum class Row : uint8_t { Empty, Filling, Full };
  std::map<ExprId, std::pair<llvm::AllocaInst*, Row>> rows_;     // row buffers of kept values
  std::map<ExprId, llvm::AllocaInst*> sweep_rows_;               // accumulators of a column sweep
  std::map<std::pair<ExprId, Sub>, llvm::AllocaInst*> running_;  // of scans: what came before
  int tile_dim_ = -1;  // the one in use: the schedule's, or a reduction's innermost
  uint32_t reduced_ = 0;
  bool block_sums_ = false;
  std::map<Value, llvm::AllocaInst*> fills_;  // constants in memory
  bool streaming_ = false;
  bool fetching_ = false;  // the sweep that fetches the next row
  int vectors_ = 1;        // in flight in the loops over vec_dim
};

}  // namespace bolt::codegen::cpu

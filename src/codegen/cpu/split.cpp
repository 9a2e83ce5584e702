// codegen/cpu/split.cpp
#include "codegen/cpu/split.h"

#include <algorithm>

#include "codegen/cpu/schedule.h"

namespace bolt::codegen::cpu {
namespace {

using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Kernel;
using loops::ReduceOp;

constexpr int64_t kSplitFrom = 1 << 18;  // elements: some 20 us of one thread
constexpr int64_t kEnoughItems = 16;     // of whole reductions
constexpr int64_t kWantedItems = 32;     // of chunks
constexpr int64_t kColumnItem = 4096;    // results of a work item that sweeps columns
constexpr int64_t kColumnMultiple = 4;   // rows that a column sweep adds at once
constexpr int64_t kRowMultiple = 1024;   // whole steps of vectors along a row
constexpr int64_t kMostRows = 1024;      // of a chunk of columns: longer chains of additions lose digits
constexpr int64_t kLeastRows = 32;  // of a chunk: partial results are at most so much less than the input

class Splitter {
 public:
  Splitter(const Kernel& k, const Target& t) : k_(k), target_(t) {}

  std::optional<SplitKernel> run() {
    if (!splittable()) return std::nullopt;
    const LoopSchedule whole = schedule(k_, target_);
    if (!whole.work.is_const() || whole.work.value() >= kEnoughItems) return std::nullopt;
    if (!choose_chunks(whole)) return std::nullopt;
    SplitKernel s{first(), second(), 0};
    s.scratch_bytes = static_cast<int64_t>(reductions_.size()) * chunks_ * results_ *
                      dtype_bytes(k_.exprs[reductions_[0]].dtype);
    return s;
  }

 private:
  bool splittable() {
    for (const loops::Dim& d : k_.dims)
      if (!d.size.is_const()) return false;
    if (k_.has_checks()) return false;
    for (ExprId id = 0; id < static_cast<ExprId>(k_.exprs.size()); ++id) {
      const Expr& e = k_.exprs[id];
      if (e.kind != ExprKind::Reduce) continue;
      const Expr& first = k_.exprs[reductions_.empty() ? id : reductions_[0]];
      if (e.reduce_op == ReduceOp::ArgMax || e.reduce_op == ReduceOp::ArgMin) return false;
      if (e.reduce_dims != first.reduce_dims || e.dims != first.dims || e.dtype != first.dtype) return false;
      if (needs_reduction(e.args[0])) return false;
      reductions_.push_back(id);
    }
    if (reductions_.empty()) return false;
    reduced_ = k_.exprs[reductions_[0]].reduce_dims;
    kept_ = k_.exprs[reductions_[0]].dims;
    const uint32_t all = (1u << k_.dims.size()) - 1;
    if ((reduced_ | kept_) != all) return false;
    for (const loops::Store& s : k_.stores)
      if ((k_.varies(s.index) | k_.exprs[s.value].dims) & reduced_) return false;
    return true;
  }

  bool needs_reduction(ExprId id) const {
    const Expr& e = k_.exprs[id];
    if (e.kind == ExprKind::Reduce) return true;
    bool any = false;
    each_operand(e, [&](ExprId a) { any = any || needs_reduction(a); });
    return any;
  }

  int64_t size(int d) const { return k_.dims[d].size.value(); }

  /// Which dimension, and chunks of how many.
  bool choose_chunks(const LoopSchedule& whole) {
    int64_t elements = 1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      elements *= size(d);
      if (reduced_ >> d & 1) {
        if (dim_ < 0 || size(d) > size(dim_)) dim_ = d;
      } else {
        results_ *= size(d);
      }
    }
    if (elements < kSplitFrom) return false;
    const int64_t n = size(dim_), multiple = dim_ == whole.vec_dim ? kRowMultiple : kColumnMultiple;
    const int64_t items = whole.sweep_rows ? results_ / kColumnItem : whole.work.value();
    const int64_t wanted = kWantedItems / std::max<int64_t>(1, items);
    inner_ = std::max((n + wanted - 1) / wanted, kLeastRows);
    if (multiple == kColumnMultiple) inner_ = std::min(inner_, kMostRows);
    inner_ = (inner_ + multiple - 1) / multiple * multiple;
    chunks_ = (n + inner_ - 1) / inner_;
    return chunks_ > 1;
  }

  /// Partial result `i` at a chunk, as an index of the scratch; `chunk` and `dim` in the kernel asked for.
  Sym partial(size_t i, Sym chunk, const std::function<Sym(int)>& dim) const {
    Sym index = Sym(static_cast<int64_t>(i) * chunks_) + chunk;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (kept_ >> d & 1) index = index * Sym(size(d)) + dim(d);
    return index;
  }

  int scratch(Kernel& k, loops::BufferRole role) const {
    const DType t = k_.exprs[reductions_[0]].dtype;
    k.buffers.push_back({t, role, ""});
    return static_cast<int>(k.buffers.size()) - 1;
  }

  // Dimension 0 is the chunk, the others move up by one.
  Kernel first() const {
    Kernel k = k_;
    k.name += "_first";
    k.stores.clear();
    auto moved = [](int d) { return Kernel::dim(d + 1); };
    Sym inner =
        size(dim_) % inner_ ? min(Sym(inner_), Sym(size(dim_)) - Sym(inner_) * Kernel::dim(0)) : Sym(inner_);
    k.dims.insert(k.dims.begin(), loops::Dim{Sym(chunks_), false});
    k.dims[static_cast<size_t>(dim_) + 1].size = inner;
    auto at = [&](int d) { return d == dim_ ? Kernel::dim(0) * Sym(inner_) + moved(d) : moved(d); };
    k.exprs.clear();
    std::vector<ExprId> place(k_.exprs.size(), loops::kNone);
    for (ExprId id : reductions_) copy(k, id, at, &place);
    const int to = scratch(k, loops::BufferRole::Out);
    for (size_t i = 0; i < reductions_.size(); ++i)
      k.stores.push_back({to, partial(i, Kernel::dim(0), moved), place[reductions_[i]], {}, loops::kNone});
    return k;
  }

  // The cut dimension counts chunks, other reduced ones are gone (size 1).
  Kernel second() const {
    Kernel k = k_;
    k.name += "_second";
    k.exprs.clear();
    for (int d = 0; d < static_cast<int>(k.dims.size()); ++d)
      if (reduced_ >> d & 1) k.dims[d] = {Sym(d == dim_ ? chunks_ : 1), d == dim_};
    const int from = scratch(k, loops::BufferRole::In);
    std::vector<ExprId> place(k_.exprs.size(), loops::kNone);
    for (size_t i = 0; i < reductions_.size(); ++i) {
      const Expr& whole = k_.exprs[reductions_[i]];
      Expr load{};
      load.kind = ExprKind::Load;
      load.dtype = whole.dtype;
      load.buffer = from;
      load.index = partial(i, Kernel::dim(dim_), [](int d) { return Kernel::dim(d); });
      Expr reduce = whole;
      reduce.args = {k.add(std::move(load))};
      reduce.reduce_dims = 1u << dim_;
      place[reductions_[i]] = k.add(std::move(reduce));
    }
    auto same = [](int d) { return Kernel::dim(d); };
    for (loops::Store& s : k.stores) {
      each_operand(s, [&](ExprId& a) { a = copy(k, a, same, &place); });
    }
    return normalise(k);
  }

  /// Expression `id` and what it needs, in another kernel whose loop variables are `at`.
  ExprId copy(Kernel& k, ExprId id, const std::function<Sym(int)>& at, std::vector<ExprId>* place) const {
    ExprId& known = (*place)[id];
    if (known != loops::kNone) return known;
    Expr e = k_.exprs[id];
    each_operand(e, [&](ExprId& a) { a = copy(k, a, at, place); });
    e.index = substitute(e.index, [&](Sym symbol) {
      for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
        if (symbol == Kernel::dim(d)) return at(d);
      return symbol;
    });
    if (e.kind == ExprKind::Reduce && k.dims.size() > k_.dims.size()) e.reduce_dims <<= 1;
    return known = k.add(std::move(e));
  }

  const Kernel& k_;
  const Target& target_;
  std::vector<ExprId> reductions_;
  uint32_t reduced_ = 0, kept_ = 0;
  int dim_ = -1;
  int64_t inner_ = 0, chunks_ = 0, results_ = 1;
};

}  // namespace

std::optional<SplitKernel> split_reduction(const Kernel& kernel, const Target& target) {
  return Splitter(kernel, target).run();
}

}  // namespace bolt::codegen::cpu

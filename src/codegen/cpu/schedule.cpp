// codegen/cpu/schedule.cpp
// See schedule.h. The choice is by counting: which dimension most accesses run along contiguously (weighted
// by what a strided one costs), how many operations a vector carries, how long the row is.

#include "codegen/cpu/schedule.h"

#include <algorithm>
#include <sstream>

#include "loops/kernel_ops.h"
#include "support/error.h"

namespace bolt::codegen::cpu {
namespace {

using loops::Expr;
using loops::ExprKind;
using loops::Kernel;
using loops::ScalarOp;

constexpr int64_t kItemElements = 4096;     // of a pointwise work item: 16 KiB of floats, half an L1
constexpr int64_t kItemsPerThread = 32768;  // elements worth waking a thread (~10 us)
constexpr int64_t kSquareBlock = 64;        // of a transposing work item, each way
constexpr double kInterleaved = 1.3;        // of 1.5 for a store of whole vectors
constexpr int64_t kLargeTile = 512, kLargeRow = 256, kEnoughSquares = 16;
constexpr int kWholeRowVectors = 8;
constexpr int64_t kRowBufferBytes = 256 << 10;
constexpr double kCheapSweep = 8;
constexpr double kDear = 8;
constexpr int kSharedBy = 4;
constexpr int kSweepRows = 4, kReadingSweepRows = 8;
constexpr int kReadingBytes = 32;
constexpr int64_t kSweepFrom = 8, kSweepMost = 4096;  // rows: fewer fit registers, more add up errors
constexpr int64_t kSweepBytes = 16 << 10;             // of accumulators: a third of an L1
constexpr int64_t kRunningBlock = 256;                // rows beside each other that scan, or scatter to runs
constexpr int64_t kSweepItems = 8, kSweepLeast = 512;

int vector_bytes(const Target& t) {
  switch (t.isa) {
    case Target::Isa::Amx:
    case Target::Isa::Avx512: return 64;
    case Target::Isa::Avx2: return 32;
    case Target::Isa::Scalar: return 0;
  }
  return 0;
}

int64_t power_of_two_at_least(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

/// Cycles: two cheap instructions start in one.
double cost(const Expr& e) {
  if (e.kind == ExprKind::Load) return e.gather.empty() ? 1 : 4;
  return e.kind == ExprKind::Op ? loops::instructions(e.op) * 0.5 : 0.5;
}

class Chooser {
 public:
  Chooser(const Kernel& k, const Target& t) : k_(k), t_(t) {
    for (const Expr& e : k.exprs) {
      reduced_ |= e.reduce_dims;
      reduces_ |= e.kind == ExprKind::Reduce;
    }
    reduced_ |= k.met_along();
  }

  LoopSchedule choose() {
    choose_lanes();
    choose_vector();
    choose_reading();
    choose_tile();
    choose_shared();
    choose_sweep();
    choose_unroll();
    choose_outer();
    choose_rows();
    choose_squares_ahead();
    choose_streamed();
    choose_grain();
    return std::move(s_);
  }

 private:
  bool is_reduced(int d) const { return reduced_ >> d & 1; }
  Sym size(int d) const { return k_.dims[d].size; }

  // As many lanes as the widest value type of the arithmetic fills a register with.
  void choose_lanes() {
    int widest = 1;
    bool floating = false;
    for (const Expr& e : k_.exprs) {
      if (e.kind == ExprKind::Index || e.kind == ExprKind::Const || e.dtype == DType::Bool) continue;
      const int bytes = dtype_bytes(compute_type(e.dtype));
      if (is_float(e.dtype) && !floating) widest = 1;
      if (is_float(e.dtype)) floating = true;
      if (is_float(e.dtype) == floating) widest = std::max(widest, bytes);
    }
    const int bytes = vector_bytes(t_);
    s_.lanes = bytes ? std::min(bytes / widest, 32) : 1;
  }

  // How many points of the space an access that varies over these dimensions is for.
  double repeats(uint32_t dims) const {
    double times = 1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (!(dims >> d & 1)) times *= static_cast<double>(std::max<int64_t>(1, size(d).value_or(256)));
    return times;
  }

  // Contiguous accesses gain, near ones of loads a little less, other strides lose but for loads that are
  // turned in registers, each as often as it is there for the most frequent one; a short dimension fills few
  // lanes.
  double score(int d) const {
    const Sym dim = Kernel::dim(d);
    double total = 0, rarest = std::numeric_limits<double>::infinity();
    for (const Expr& e : k_.exprs)
      if (e.kind == ExprKind::Load) rarest = std::min(rarest, repeats(e.dims));
    for (const loops::Store& st : k_.stores) rarest = std::min(rarest, repeats(k_.dims_of(st)));
    auto access = [&](Sym index, double weight, uint32_t dims, bool gathered, bool loads) {
      const LinearIn l = linear_in(index, dim);
      weight *= rarest / repeats(dims);
      if (!l.linear || gathered)
        total -= 2 * weight;
      else if (l.coef.is_const(1))
        total += weight;
      else if (loads && is_near(l.coef.value_or(0)))
        total += weight * (1 - 0.1 * static_cast<double>(std::abs(l.coef.value())));
      else if (!l.coef.is_const(0))
        total -= weight;
    };
    auto gathers_along = [&](const std::vector<loops::GatherTerm>& terms) {
      return std::any_of(terms.begin(), terms.end(),
                         [&](const loops::GatherTerm& g) { return k_.exprs[g.value].dims >> d & 1; });
    };
    for (const Expr& e : k_.exprs)
      if (e.kind == ExprKind::Load && turned_along(e, d) < 0)
        access(e.index, 1, e.dims, gathers_along(e.gather), true);
    for (const loops::Store& st : k_.stores)
      if (interleaved_along(st, d) >= 0)
        total += kInterleaved * rarest / repeats(k_.dims_of(st));
      else
        access(st.index, 1.5, k_.dims_of(st), gathers_along(st.gather), false);
    const int64_t n = size(d).value_or(1 << 20);
    // Where the largest of a row lies, lanes that share the row find out pair by pair, at the end of each.
    for (const Expr& e : k_.exprs)
      if (e.kind == ExprKind::Reduce && loops::is_arg_reduce(e.reduce_op) && (e.reduce_dims >> d & 1))
        total -= 2.0 * s_.lanes / static_cast<double>(std::max<int64_t>(1, n));
    const double filled = static_cast<double>(std::min<int64_t>(n, s_.lanes)) / s_.lanes;
    return total > 0 ? total * filled : total - (1 - filled);
  }

  void choose_vector() {
    if (s_.lanes == 1) {
      s_.vec_dim = static_cast<int>(k_.dims.size()) - 1;
      return;
    }
    double best = -1e30;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      const double value = score(d) + 1e-3 * d;
      if (value > best) best = value, s_.vec_dim = d;
    }
    if (s_.vec_dim < 0) return;
    const int64_t n = size(s_.vec_dim).value_or(1 << 20);
    s_.lanes = static_cast<int>(std::min<int64_t>(s_.lanes, power_of_two_at_least(n)));
    if (meets_one_by_one() && operations() <= kCheapSweep) s_.lanes = 1;
  }

  // Are lanes combined with memory one after the other, as they may meet there? Then addresses that come out
  // of a vector come late: where little is computed, they are better made one by one, too.
  bool meets_one_by_one() const {
    auto combines = [](const loops::Store& st) { return st.combines(); };
    return (k_.met_along() >> s_.vec_dim & 1) && std::any_of(k_.stores.begin(), k_.stores.end(), combines);
  }

  // A reduction that reads memory once and does little else is as fast as lines arrive, and more arrive where
  // each is asked for twice, in halves: 20.6 GB/s against 16.9 on one thread of a Zen 4, where a copy moves
  // 20.8. Inside the caches whole lines win.
  void choose_reading() {
    if (s_.vec_dim < 0 || operations() > kCheapSweep || bytes_read() < t_.l3_bytes) return;
    if (!reduces_ || has_nested_reductions()) return;
    const int64_t n = size(s_.vec_dim).value_or(1 << 20);
    if (n <= static_cast<int64_t>(s_.lanes) * kWholeRowVectors) return;
    reading_ = true;
    const int bytes = vector_bytes(t_);
    if (bytes > kReadingBytes) s_.lanes = std::max(1, s_.lanes * kReadingBytes / bytes);
  }

  // What all the loads touch, where the sizes are known.
  int64_t bytes_read() const {
    int64_t all = 0;
    for (const Expr& e : k_.exprs) {
      if (e.kind != ExprKind::Load) continue;
      int64_t bytes = dtype_bytes(e.dtype);
      for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
        if (e.dims >> d & 1) bytes *= size(d).value_or(0);
      all += bytes;
    }
    return all;
  }

  // Does a reduction need the result of another?
  bool has_nested_reductions() const {
    std::vector<char> reduces(k_.exprs.size(), 0);
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      const Expr& e = k_.exprs[i];
      each_operand(e, [&](loops::ExprId a) { reduces[i] |= reduces[a]; });
      if (e.kind != ExprKind::Reduce) continue;
      if (reduces[i]) return true;
      reduces[i] = 1;
    }
    return false;
  }

  // The other parallel dimension along which a load is contiguous that is strided along `vector`; -1: none,
  // or its mask differs within a square.
  int turned_along(const Expr& e, int vector) const {
    if (s_.lanes < 4 || reduced_ || e.kind != ExprKind::Load || !e.gather.empty()) return -1;
    const LinearIn along = linear_in(e.index, Kernel::dim(vector));
    if (!along.linear || along.coef.is_const(0) || along.coef.is_const(1)) return -1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      const LinearIn across = linear_in(e.index, Kernel::dim(d));
      const bool fits = d != vector && size(d).value_or(1 << 20) >= s_.lanes;
      if (fits && across.linear && across.coef.is_const(1) && is_one_mask(k_, e, vector, d)) return d;
    }
    return -1;
  }

  int interleaved_along(const loops::Store& st, int vector) const {
    const bool fills_lanes = s_.lanes >= 4 && size(vector).value_or(1 << 20) >= s_.lanes;
    return fills_lanes && !reduced_ ? interleaves_along(k_, st, vector) : -1;
  }

  // Such a load is turned in registers, or what is stored put between each other.
  void choose_tile() {
    if (s_.vec_dim < 0) return;
    for (const Expr& e : k_.exprs) {
      s_.tile_dim = turned_along(e, s_.vec_dim);
      if (s_.tile_dim >= 0) return void(s_.tile = s_.lanes);
    }
    for (const loops::Store& st : k_.stores) {
      s_.tile_dim = interleaved_along(st, s_.vec_dim);
      if (s_.tile_dim >= 0) return void(s_.tile = static_cast<int>(size(s_.tile_dim).value()));
    }
  }

  // Does each lane of the load come from an address of its own?
  bool gathers(const Expr& e) const {
    if (e.kind != ExprKind::Load || !e.gather.empty()) return false;
    const LinearIn along = linear_in(e.index, Kernel::dim(s_.vec_dim));
    const int64_t step = along.coef.value_or(kSquareBlock);
    return !along.linear || (step != 0 && !is_near(step));
  }

  // What is dear and the same all along another parallel dimension (where channels of an image are read) is
  // computed once for several of its indices.
  void choose_shared() {
    if (s_.tile_dim >= 0 || s_.vec_dim < 0 || s_.lanes < 4 || reduced_) return;
    double most = kDear;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      if (d == s_.vec_dim || size(d).value_or(0) < kSharedBy) continue;
      double shared = 0, others = 0;
      for (const Expr& e : k_.exprs)
        if (e.dims >> s_.vec_dim & 1) (e.dims >> d & 1 ? others : shared) += gathers(e) ? s_.lanes : cost(e);
      if (shared > most && shared * 2 > others) most = shared, s_.tile_dim = d;
    }
    if (s_.tile_dim >= 0) s_.tile = kSharedBy;
  }

  // One round of reductions over rows, whose results vary along the vectors.
  void choose_sweep() {
    if (!reduces_ || s_.vec_dim < 0 || is_reduced(s_.vec_dim)) return;
    int64_t rows = 1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (is_reduced(d)) rows *= std::max<int64_t>(0, upper_bound(size(d)) - 1);  // 0: not known
    if (rows < kSweepFrom || rows > kSweepMost) return;
    if (size(s_.vec_dim).value_or(1 << 20) <= static_cast<int64_t>(s_.lanes) * 4) return;
    int64_t bytes = 0;
    if (has_nested_reductions()) return;
    for (const Expr& e : k_.exprs) {
      if (e.kind != ExprKind::Reduce) continue;
      const bool position = e.reduce_op == loops::ReduceOp::ArgMax || e.reduce_op == loops::ReduceOp::ArgMin;
      if (position || e.reduce_dims != reduced_ || !(e.dims >> s_.vec_dim & 1)) return;
      bytes += dtype_bytes(e.dtype);
    }
    for (const loops::Store& st : k_.stores)
      if ((k_.varies(st.index) | k_.exprs[st.value].dims) & reduced_) return;
    s_.sweep_rows = reading_ ? kReadingSweepRows : kSweepRows;
    s_.sweep_block = kSweepBytes / bytes;
  }

  double operations() const {
    double total = 0;
    for (const Expr& e : k_.exprs) total += cost(e);
    return total;
  }

  void choose_unroll() {
    if (s_.vec_dim < 0 || s_.tile_dim >= 0) return;
    const int64_t n = size(s_.vec_dim).value_or(1 << 20);
    const int64_t vectors = (n + s_.lanes - 1) / s_.lanes;
    const double ops = operations();
    int most = ops > 80 ? 1 : ops > 16 ? 2 : 4;
    if (is_reduced(s_.vec_dim)) {
      const int whole = ops > 40 ? kWholeRowVectors / 2 : kWholeRowVectors;
      s_.whole_row = size(s_.vec_dim).is_const() && vectors <= whole && s_.lanes > 1;
      if (s_.whole_row) most = whole;
    } else if (s_.sweep_rows) {
      most = ops > 16 ? 1 : 2;
    } else if (reduced_) {
      most = 4;
    }
    const int64_t full = s_.whole_row ? vectors : n / s_.lanes;  // those without a tail's mask
    s_.unroll = static_cast<int>(std::clamp<int64_t>(full, 1, most));
  }

  void choose_outer() {
    s_.work = Sym(1);
    if (s_.sweep_rows) choose_sweep_block();
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      if (is_reduced(d)) continue;
      Sym block(1);
      if (d == s_.tile_dim) block = Sym(large_squares() ? kLargeTile : kSquareBlock);
      if (d == s_.vec_dim) block = vector_block(d);
      s_.outer.push_back({d, block});
      s_.work = s_.work * ceildiv(size(d), block);
    }
  }

  // Whole vectors, and some items for the threads even if there is nothing else to share out.
  void choose_sweep_block() {
    const int64_t n = size(s_.vec_dim).value_or(1 << 20), step = static_cast<int64_t>(s_.lanes) * s_.unroll;
    int64_t others = 1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (!is_reduced(d) && d != s_.vec_dim) others *= size(d).value_or(kSweepItems);
    int64_t block = std::min(n, s_.sweep_block);
    if (others < kSweepItems) block = std::min(block, std::max(kSweepLeast, n * others / kSweepItems));
    s_.sweep_block = (block + step - 1) / step * step;
  }

  // Long pieces of rows are written at a time, as long as there is work for all threads.
  bool large_squares() const {
    const int64_t rows = size(s_.tile_dim).value_or(0), row = size(s_.vec_dim).value_or(0);
    return rows / kLargeTile * (row / kLargeRow) >= kEnoughSquares;
  }

  Sym vector_block(int d) const {
    const int64_t step = static_cast<int64_t>(s_.lanes) * s_.unroll;
    if (s_.sweep_rows) return Sym(s_.sweep_block);
    const bool interleaves = s_.tile_dim >= 0 && size(s_.tile_dim).is_const(s_.tile);
    if (s_.tile_dim >= 0 && !interleaves) return Sym(large_squares() ? kLargeRow : kSquareBlock);
    if (reduced_ && reduces_) return Sym(step);
    if (reduced_) return Sym(running_block(d, step));
    if (size(d).is_const() && size(d).value() <= kItemElements) return size(d);
    return Sym(kItemElements / step * step);
  }

  // Rows that scan, or that elements are scattered to: some items for the threads, of whole vectors.
  int64_t running_block(int d, int64_t step) const {
    int64_t rows = size(d).value_or(kRunningBlock * kSweepItems);
    for (int other = 0; other < static_cast<int>(k_.dims.size()); ++other)
      if (!is_reduced(other) && other != d) rows *= size(other).value_or(kSweepItems);
    const int64_t block = std::min(kRunningBlock, (rows + kSweepItems - 1) / kSweepItems);
    return std::max(step, (block + step - 1) / step * step);
  }

  // What concerns the sweeps over a long row, one for each reduction that needs another.
  void choose_rows() {
    if (s_.vec_dim < 0 || !is_reduced(s_.vec_dim) || s_.whole_row) return;
    depth_.assign(k_.exprs.size(), 0);
    work_.assign(k_.exprs.size(), 0);
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      const Expr& e = k_.exprs[i];
      work_[i] = cost(e);
      for (loops::ExprId a : e.args) {
        depth_[i] = std::max(depth_[i], depth_[a]);
        if (k_.exprs[a].dims & reduced_) work_[i] += work_[a];
      }
      if (e.kind != ExprKind::Reduce) continue;
      if (work_[i] <= kCheapSweep) s_.rounds[static_cast<loops::ExprId>(i)] = std::max(s_.unroll, 4);
      ++depth_[i], work_[i] = 0;
    }
    choose_kept();
    choose_ahead();
  }

  // Values over a long row that are dear to compute and used by more than one sweep. The row's length must be
  // known.
  void choose_kept() {
    Sym elements(1);
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (is_reduced(d)) elements = elements * size(d);
    if (!elements.is_const()) return;
    const uint32_t row = reduced_;
    // Sweeps a value is used in: the depth of the reductions that take it, or the last for stores.
    std::vector<uint64_t> used(k_.exprs.size(), 0);
    auto use = [&](loops::ExprId id, uint64_t sweeps) { used[id] |= sweeps; };
    for (const loops::Store& st : k_.stores) use(st.value, uint64_t{1} << 63);
    int64_t bytes = 0;
    for (size_t i = k_.exprs.size(); i-- > 0;) {
      const Expr& e = k_.exprs[i];
      const bool in_row = (e.dims & row) == row && e.kind != ExprKind::Reduce;
      const bool repeated = (used[i] & (used[i] - 1)) != 0;
      const int64_t size_bytes = elements.value() * dtype_bytes(e.dtype == DType::Bool ? DType::I8 : e.dtype);
      if (in_row && repeated && work_[i] >= 6 && bytes + size_bytes <= kRowBufferBytes && is_float(e.dtype) &&
          dtype_bytes(e.dtype) >= 4) {
        s_.kept.push_back(static_cast<loops::ExprId>(i));
        bytes += size_bytes;
        used[i] &= ~used[i] + 1;  // from now on only its first sweep computes its operands
      }
      const uint64_t passed = e.kind == ExprKind::Reduce ? uint64_t{1} << std::min(depth_[i], 62) : used[i];
      each_operand(e, [&](loops::ExprId a) { use(a, passed); });
    }
    if (!s_.kept.empty()) s_.row_elements = elements;
  }

  // The first sweep waits for memory and the others compute: the next row is fetched while they do. A row
  // must leave room for the next one, and all of them must not fit a cache anyway.
  void choose_ahead() {
    if (s_.outer.empty() || s_.lanes == 1) return;
    loops::ExprId last = loops::kNone;
    for (size_t i = 0; i < k_.exprs.size(); ++i)
      if (k_.exprs[i].kind == ExprKind::Reduce && depth_[i] >= 2 &&
          (last == loops::kNone || depth_[i] > depth_[last]))
        last = static_cast<loops::ExprId>(i);
    if (last == loops::kNone || !(k_.exprs[last].reduce_dims >> s_.vec_dim & 1)) return;
    const int next = s_.outer.back().dim;
    int64_t row = 0, all = 0;
    std::vector<loops::ExprId> loads;
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      const Expr& e = k_.exprs[i];
      if (e.kind != ExprKind::Load || !e.gather.empty() || e.mask != loops::kNone) continue;
      const LinearIn along = linear_in(e.index, Kernel::dim(s_.vec_dim)),
                     across = linear_in(e.index, Kernel::dim(next));
      if (!along.linear || !along.coef.is_const(1) || !across.linear || !across.coef.is_const()) continue;
      int64_t bytes = dtype_bytes(e.dtype), total = bytes;
      for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
        if (e.dims >> d & 1) total *= size(d).value_or(0);
        if ((e.dims & reduced_) >> d & 1) bytes *= size(d).value_or(0);
      }
      row += bytes;
      if (!across.coef.is_const(0)) loads.push_back(static_cast<loops::ExprId>(i)), all += total;
    }
    if (loads.empty() || row == 0 || row * 3 > t_.l2_bytes || all <= t_.l2_bytes) return;
    s_.ahead = loads;
    s_.ahead_of = last;
    s_.ahead_locality = row * 3 <= t_.l1_bytes ? 3 : 2;
  }

  // The lines of a square lie in as many pages, where no prefetcher of the machine follows: those of a later
  // one are fetched while this one is turned.
  void choose_squares_ahead() {
    if (s_.tile_dim < 0 || size(s_.vec_dim).value_or(0) < 4 * kSquareBlock) return;
    int64_t all = 0;
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      const Expr& e = k_.exprs[i];
      if (e.kind != ExprKind::Load || !e.gather.empty() || e.mask != loops::kNone) continue;
      const LinearIn along = linear_in(e.index, Kernel::dim(s_.vec_dim)),
                     across = linear_in(e.index, Kernel::dim(s_.tile_dim));
      if (!along.linear || !along.coef.is_const() || !across.linear || !across.coef.is_const()) continue;
      if (along.coef.is_const(0) || across.coef.is_const(0)) continue;
      int64_t total = dtype_bytes(e.dtype);
      for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
        if (e.dims >> d & 1) total *= size(d).value_or(0);
      all += total;
      s_.ahead.push_back(static_cast<loops::ExprId>(i));
    }
    if (all <= t_.l2_bytes) s_.ahead.clear();
    s_.ahead_distance = kSquareBlock;
    s_.ahead_locality = 2;
  }

  // Stores that fill whole cache lines, one vector after the other.
  void choose_streamed() {
    if (s_.lanes == 1 || s_.vec_dim < 0) return;
    for (const loops::Store& st : k_.stores) {
      const LinearIn along = linear_in(st.index, Kernel::dim(s_.vec_dim));
      const int64_t bytes = dtype_bytes(k_.buffers[st.buffer].dtype);
      const bool lines = bytes * s_.lanes * (s_.tile_dim >= 0 ? 1 : s_.unroll) >= kLineBytes;
      if (!lines || st.scatters() || !st.gather.empty() || st.mask != loops::kNone) continue;
      if (!along.linear || !along.coef.is_const(1) || !divisible(along.rest, s_.lanes)) continue;
      int64_t stored = bytes;
      const uint32_t dims = k_.varies(st.index);
      for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
        if (dims >> d & 1) stored *= size(d).value_or(0);
      if (stored >= t_.l3_bytes) s_.streamed.push_back(st.buffer);
    }
  }

  void choose_grain() {
    double per_item = std::max(1.0, operations() / 8);
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (is_reduced(d)) per_item *= static_cast<double>(size(d).value_or(256));
    for (const OuterDim& o : s_.outer) per_item *= static_cast<double>(o.block.value_or(256));
    s_.grain = std::max<int64_t>(1, static_cast<int64_t>(kItemsPerThread / per_item));
  }

  const Kernel& k_;
  const Target& t_;
  uint32_t reduced_ = 0;  // what an item runs through: also along scans, and where scatters meet
  bool reduces_ = false;
  bool reading_ = false;  // see choose_reading
  LoopSchedule s_;
  std::vector<int> depth_;    // reductions on the way to a value, itself counted
  std::vector<double> work_;  // of a value, from the loads or the reduction before it
};

}  // namespace

int interleaves_along(const Kernel& k, const loops::Store& st, int vec_dim) {
  if (st.scatters() || !st.gather.empty() || st.mask != loops::kNone) return -1;
  const LinearIn along = linear_in(st.index, Kernel::dim(vec_dim));
  if (!along.linear || (!along.coef.is_const(2) && !along.coef.is_const(4))) return -1;
  for (int d = 0; d < static_cast<int>(k.dims.size()); ++d) {
    const LinearIn across = linear_in(st.index, Kernel::dim(d));
    if (d != vec_dim && k.dims[d].size == along.coef && across.linear && across.coef.is_const(1)) return d;
  }
  return -1;
}

bool is_one_mask(const Kernel& k, const Expr& load, int vec_dim, int tile_dim) {
  if (load.mask == loops::kNone) return true;
  const uint32_t square = uint32_t{1} << vec_dim | uint32_t{1} << tile_dim;
  return (k.exprs[load.mask].dims & square) == 0;
}

LoopSchedule schedule(const Kernel& kernel, const Target& target) { return Chooser(kernel, target).choose(); }

std::string print(const LoopSchedule& s) {
  std::ostringstream out;
  out << "outer [";
  for (size_t i = 0; i < s.outer.size(); ++i)
    out << (i ? ", " : "") << "d" << s.outer[i].dim << "/" << s.outer[i].block.str();
  out << "] vector d" << s.vec_dim << " x" << s.lanes << " unroll " << s.unroll;
  if (s.tile_dim >= 0) out << " tile d" << s.tile_dim << " x" << s.tile;
  if (s.whole_row) out << " whole-row";
  if (s.sweep_rows) out << " sweep " << s.sweep_rows << " x " << s.sweep_block;
  for (loops::ExprId id : s.kept) out << " keep %" << id;
  for (auto [id, vectors] : s.rounds)
    if (vectors != s.unroll) out << " unroll " << vectors << " in %" << id;
  for (loops::ExprId id : s.ahead)
    out << " ahead %" << id << (s.ahead_of == loops::kNone ? "" : " in %" + std::to_string(s.ahead_of));
  for (int b : s.streamed) out << " stream b" << b;
  out << " work " << s.work.str() << " grain " << s.grain << "\n";
  return out.str();
}

}  // namespace bolt::codegen::cpu

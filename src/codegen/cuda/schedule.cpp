// codegen/cuda/schedule.cpp
// See schedule.h.

#include "codegen/cuda/schedule.h"

#include <algorithm>
#include <optional>

#include "loops/analysis.h"
#include "loops/normalise.h"
#include "loops/space.h"

namespace bolt::codegen::cuda {

using loops::Expr;
using loops::ExprKind;
using loops::GatherTerm;
using loops::Kernel;

namespace {

/// With 512 threads in a block each still has 128 registers.
constexpr int kWarp = 32, kMaxThreads = 512, kMaxVector = 8;
/// Elements of one value that a thread may hold: more would spill.
constexpr int64_t kHeldElements = 32;
/// Vectors per thread that hide the latency of memory at full occupancy.
constexpr int64_t kVectorsPerThread = 4;

/// Threads of a block, where `usual` would be; no more than `most`.
int threads(int usual, const ScheduleOptions& options, int most = kMaxThreads) {
  const int asked = options.wider < 0 ? usual >> -options.wider : usual << options.wider;
  return std::clamp(asked, kWarp, most);
}

uint32_t reduced_dims(const Kernel& k) {
  uint32_t mask = 0;
  for (const Expr& e : k.exprs) mask |= e.reduce_dims;
  return mask;
}

Sym points(const Kernel& k, const std::vector<int>& dims) {
  Sym n = 1;
  for (int d : dims) n *= k.dims[d].size;
  return n;
}

struct AccessedPlace {
  Sym index;
  const std::vector<GatherTerm>& gather;
  loops::ExprId mask;
  DType dtype;
  bool is_store;
};

template <typename F>
void each_access(const Kernel& k, F&& f) {
  for (const Expr& e : k.exprs)
    if (e.kind == ExprKind::Load) f(AccessedPlace{e.index, e.gather, e.mask, e.dtype, false});
  for (const loops::Store& s : k.stores)
    f(AccessedPlace{s.index, s.gather, s.mask, k.buffers[s.buffer].dtype, true});
}

/// About how long a dimension is. Where that depends on others, as the length of a chunk does on its number,
/// it is what the first has: the last ones may have nothing at all.
double length_of(const Kernel& k, size_t dim) {
  const Sym first =
      substitute(k.dims[dim].size, [&](Sym symbol) { return k.varies(symbol) ? Sym(0) : symbol; });
  return static_cast<double>(loops::estimate(first));
}

/// Bytes of what is read and written whose neighbours along `dim` are neighbours in memory.
double bytes_along(const Kernel& k, int dim) {
  double bytes = 0;
  each_access(k, [&](const AccessedPlace& p) {
    const loops::LinearIn along = loops::linear_in(p.index, Kernel::dim(dim));
    if (!along.linear || !along.coef.is_const(1)) return;
    double touched = dtype_bytes(p.dtype);
    const uint32_t dims = k.varies(p.index);
    for (size_t d = 0; d < k.dims.size(); ++d)
      if (dims >> d & 1) touched *= length_of(k, d);
    bytes += touched;
  });
  return bytes;
}

/// Are the rows the columns of a matrix in memory? What counts is how most of it lies: a number for each
/// element of a row lies along the row, too.
bool rows_are_columns(const Kernel& k, const Schedule& s) {
  return !s.outer.empty() && bytes_along(k, s.outer.back()) > bytes_along(k, s.row.back());
}

/// As many elements as 16 bytes of the narrowest contiguous access hold, if they divide the dimension. Rows
/// that differ in length go through theirs apart.
int pick_vector(const Kernel& k, Schedule s) {
  for (int d : s.row)
    if (k.varies(k.dims[d].size) >> s.inner & 1) return 1;
  int narrowest = 16;
  each_access(k, [&](const AccessedPlace& p) {
    const loops::LinearIn along = loops::linear_in(p.index, Kernel::dim(s.inner));
    if (along.linear && along.coef.is_const(1)) narrowest = std::min(narrowest, dtype_bytes(p.dtype));
  });
  for (s.vector = std::min(kMaxVector, 16 / narrowest); s.vector > 1; s.vector /= 2) {
    if (!divisible(k.dims[s.inner].size, s.vector)) continue;
    bool any = false;
    each_access(k, [&](const AccessedPlace& p) { any = any || is_wide(k, s, p.index, p.gather, p.mask); });
    if (any) return s.vector;
  }
  return 1;
}

/// Rows of fewer vectors have too little between the first and the last.
constexpr int64_t kWorthShifting = 8;

/// Where rows begin anywhere in memory, as those of an odd length do, whole accesses are still to be had:
/// all tensors of the same rows begin at the same place between two accesses. Of several places that of
/// stores counts first, since what several loads take from one line comes from a cache.
void shift_rows(const Kernel& k, Schedule* s) {
  const Sym size = k.dims[s->inner].size;
  std::optional<AccessedPlace> best;
  Sym begin = 0;
  auto is_better = [&](const AccessedPlace& p, Sym rest) {
    if (!best || begin.is_const() != rest.is_const()) return !best || begin.is_const();
    if (p.is_store != best->is_store) return p.is_store;
    return dtype_bytes(p.dtype) < dtype_bytes(best->dtype);
  };
  each_access(k, [&](const AccessedPlace& p) {
    const loops::LinearIn along = loops::linear_in(p.index, Kernel::dim(s->inner));
    if (!along.linear || !along.coef.is_const(1) || !is_better(p, along.rest)) return;
    best.emplace(p);
    begin = along.rest;
  });
  if (!best) return;
  Schedule shifted = *s;
  shifted.shifted = true;
  shifted.shift = begin;
  shifted.vector = std::min(kMaxVector, 16 / dtype_bytes(best->dtype));
  const int64_t length = size.value_or(1 << 20);
  if (shifted.vector <= s->vector || length < kWorthShifting * shifted.vector) return;
  if (length > (int64_t{1} << 31) - 1 - kMaxVector) return;  // places in a row are 32 bits wide there
  if (is_wide(k, shifted, best->index, best->gather, best->mask)) *s = shifted;
}

/// The power of two from `low` to `high` that is at least `wanted`, or `high`.
int power_of_two(int64_t wanted, int low, int high) {
  int n = low;
  while (n < wanted && n < high) n *= 2;
  return n;
}

/// The dimension along which a load runs that does not run along `inner`; -1: none, or not plainly.
int runs_across(const Expr& e, int inner) {
  if (e.kind != ExprKind::Load || e.mask != loops::kNone || !e.gather.empty()) return -1;
  const loops::LinearIn in = loops::linear_in(e.index, Kernel::dim(inner));
  if (!in.linear || in.coef.is_const(0) || in.coef.is_const(1)) return -1;
  for (int d = 0; d < inner; ++d) {
    const loops::LinearIn along = loops::linear_in(e.index, Kernel::dim(d));
    if (along.linear && along.coef.is_const(1)) return d;
  }
  return -1;
}

/// A square pays where both sides are longer than a sector of memory.
constexpr int64_t kWorthTurning = 16;

/// Shared memory that the text of a kernel may declare.
constexpr int64_t kMostDeclared = 48 << 10;

/// Of all squares of a block.
int64_t bytes_of_squares(const Kernel& k, const Schedule& s) {
  int64_t bytes = 0;
  for (const Expr& e : k.exprs)
    if (is_turned(s, e)) bytes += s.tile * row_of_square(s, e.dtype) * dtype_bytes(e.dtype);
  return bytes;
}

bool schedule_tile(const Kernel& k, Schedule* s) {
  int widest = 1;
  for (const Expr& e : k.exprs) {
    const int across = runs_across(e, s->inner);
    if (across < 0 || (s->across >= 0 && across != s->across)) continue;
    s->across = across;
    widest = std::max(widest, dtype_bytes(e.dtype));
  }
  auto short_side = [&](int d) { return k.dims[d].size.value_or(kWorthTurning) < kWorthTurning; };
  if (s->across < 0 || short_side(s->inner) || short_side(s->across)) {
    s->across = -1;
    return false;
  }
  s->way = Mapping::Tile;
  s->tile = widest <= 2 ? 64 : 32;
  if (bytes_of_squares(k, *s) > kMostDeclared) s->tile = 32;
  if (bytes_of_squares(k, *s) > kMostDeclared) {
    s->way = Mapping::Points;
    s->across = -1;
    s->tile = 0;
    return false;
  }
  s->blocks = 1;
  for (int d : s->outer) {
    const Sym size = k.dims[d].size;
    s->blocks *= d == s->inner || d == s->across ? ceildiv(size, s->tile) : size;
  }
  return true;
}

void schedule_points(const Kernel& k, const ScheduleOptions& options, Schedule* s) {
  s->inner = static_cast<int>(k.dims.size()) - 1;
  // The threads of a warp add to neighbours at once: that is few transactions, and vectors of each would be
  // many.
  const bool adds =
      std::any_of(k.stores.begin(), k.stores.end(), [](const auto& st) { return st.combines(); });
  const bool wide = options.aligned && s->inner >= 0 && !adds;
  if (wide) s->vector = pick_vector(k, *s);
  if (schedule_tile(k, s)) return;
  if (wide) shift_rows(k, s);
  s->count = points(k, s->outer);
  if (s->shifted) {
    const std::vector<int> rows(s->outer.begin(), s->outer.end() - 1);
    s->count = points(k, rows) * vectors_of(*s, k.dims[s->inner].size);
  }
  s->blocks = ceildiv(s->count, s->threads * (s->shifted ? 1 : s->vector));
}

/// Vectors that fill a line of memory, which is the least that threads should read beside each other.
constexpr int kLine = 8;
/// Blocks that occupy a device: several on each multiprocessor.
constexpr int64_t kOccupied = 512;

constexpr int kFewThreads = 64;

/// Longer rows are cut into chunks where there are few of them (parts.h).
constexpr int64_t kShortColumn = 1024;

/// Rows that are columns of memory. A warp reads 32 vectors beside each other, or fewer where that leaves the
/// device idle; as many as the rows are long read one below the other.
void schedule_columns(const Kernel& k, const ScheduleOptions& options, Schedule* s) {
  s->way = Mapping::Columns;
  s->inner = s->outer.back();
  if (options.aligned) s->vector = pick_vector(k, *s);
  const Sym beside = floordiv(points(k, s->outer), s->vector), length = points(k, s->row);
  int wide = power_of_two(beside.value_or(kWarp), 1, kWarp);
  const bool is_short = length.value_or(kShortColumn + 1) <= kShortColumn;
  while (is_short && wide > kLine && beside.value_or(kOccupied * kWarp) < kOccupied * wide) wide /= 2;
  s->group = power_of_two(length.value_or(1 << 20) / 4, 1, s->threads / wide);
  if (wide < kWarp) s->threads = std::max(kFewThreads, wide * s->group);
  s->count = beside;
  s->blocks = ceildiv(beside, s->rows());
}

/// Shared memory that a block may have.
int64_t shared_limit(int capability) {
  constexpr struct {
    int capability;
    int64_t kilobytes;
  } kLimits[] = {{100, 227}, {90, 227}, {87, 163}, {80, 163}, {75, 64}, {70, 96}};
  for (const auto& row : kLimits)
    if (capability == row.capability || (capability > 100 && capability < 120)) return row.kilobytes << 10;
  return 99 << 10;
}

/// Three such blocks fit a multiprocessor: one reads while another writes. Smaller ones, in larger clusters,
/// wait longer for one another than that wins.
constexpr int64_t kRoomOfThree = 75 << 10;
constexpr int64_t kRoomOfTwo = 112 << 10;

/// Blocks of a cluster: 8 wherever there are clusters, 16 where the launch may ask for them.
int most_blocks(int capability) {
  if (capability < 90) return 1;
  return capability < 110 ? 16 : kPortableCluster;
}

/// Of all values that sweeps keep of an element.
int64_t kept_bytes(const Kernel& k, const Sweeps& sweeps) {
  int64_t bytes = 0;
  for (size_t i = 0; i < k.exprs.size(); ++i)
    if (sweeps.kept[i]) bytes += dtype_bytes(k.exprs[i].dtype);
  return bytes;
}

/// What would be kept of an element, were the row held in shared memory.
int64_t bytes_to_hold(const Kernel& k, Schedule s, bool functions) {
  s.in_shared = true;
  s.holds_functions = functions;
  return kept_bytes(k, plan_sweeps(k, s));
}

/// A row that registers do not hold: in the shared memory of one block, or of a cluster's. What functions
/// give (logits behind a tanh) takes more room than what they read, and is not computed in each sweep.
void hold_in_shared(const Kernel& k, const ScheduleOptions& options, int64_t length, Schedule* s) {
  if (plan_sweeps(k, *s).stores == 0) return;  // it is read once
  auto hold = [&](bool functions) {
    const int64_t held = bytes_to_hold(k, *s, functions);
    if (!held) return false;  // each sweep reads something else
    const int64_t bytes = held * length + kMaxThreads * 16;
    int cluster = 1;
    while (cluster < most_blocks(options.capability) && bytes / cluster > kRoomOfThree) cluster *= 2;
    if (bytes / cluster > shared_limit(options.capability)) return false;
    s->in_shared = true;
    s->holds_functions = functions;
    if (bytes / cluster > kRoomOfTwo) s->threads *= 2;  // alone on its multiprocessor
    s->cluster = cluster;
    s->group = s->threads * cluster;
    s->blocks = s->count * Sym(cluster);
    return true;
  };
  if (!hold(true)) hold(false);
}

/// Rows of fewer elements than a warp's threads take few times are a warp's.
constexpr int64_t kWarpScans = 512, kBlockScans = 4096;

/// Who scans a row: in the same ways, but every row goes on from where it came to, so that none is held and
/// none cut.
void schedule_scans(const Kernel& k, Schedule* s) {
  const Sym rows = points(k, s->outer), length = points(k, s->row);
  s->scans = true;
  s->inner = s->row.back();
  s->count = rows;
  const int64_t known = length.value_or(kBlockScans);
  const bool columns = rows_are_columns(k, *s);
  if (columns || (known <= 8 && !s->outer.empty())) {
    s->way = columns ? Mapping::Columns : Mapping::Thread;
    s->threads = 128;
    s->inner = columns ? s->outer.back() : s->inner;
    s->blocks = ceildiv(rows, s->threads);
  } else if (known <= kWarpScans && !s->outer.empty()) {
    s->way = Mapping::Warp;
    s->threads = 128;
    s->group = kWarp;
    s->blocks = ceildiv(rows, s->threads / kWarp);
  } else {
    s->way = Mapping::Block;
    s->threads = known < kBlockScans ? 256 : kMaxThreads;
    s->group = s->threads;
    s->blocks = rows;
  }
}

/// Who computes a row. Neighbouring threads must touch neighbouring memory: where the rows are the columns of
/// a matrix, they take each one of its own.
void schedule_rows(const Kernel& k, const ScheduleOptions& options, Schedule* s) {
  const Sym rows = points(k, s->outer), length = points(k, s->row);
  s->inner = s->row.back();
  const bool columns = rows_are_columns(k, *s);
  const bool tiny = length.is_const() && length.value() <= 8 && !s->outer.empty();
  if (columns) {
    schedule_columns(k, options, s);
  } else if (tiny) {
    s->way = Mapping::Thread;
    s->blocks = ceildiv(rows, s->threads);
  } else {
    if (options.aligned) s->vector = pick_vector(k, *s);
    if (options.aligned && s->row.size() == 1) shift_rows(k, s);
    // A row of unknown length is taken for a long one.
    const int64_t vectors = vectors_of(*s, length).value_or(1024);
    if (vectors <= kWarp * kVectorsPerThread && !s->outer.empty()) {
      s->way = Mapping::Warp;
      s->threads = threads(128, options);
      s->group = kWarp;
      s->blocks = ceildiv(rows, s->threads / kWarp);
    } else {
      s->way = Mapping::Block;
      s->threads = threads(
          power_of_two((vectors + kVectorsPerThread - 1) / kVectorsPerThread, 64, kMaxThreads), options);
      s->group = s->threads;
      s->blocks = rows;
    }
  }
  if (!columns) s->count = rows;
  if (!length.is_const() || length.value() < 1) return;
  const int64_t held = turns_of(k, *s);
  if (held * s->vector <= kHeldElements)
    s->held = static_cast<int>(held);
  else if (s->way == Mapping::Block)
    hold_in_shared(k, options, length.value(), s);
}

}  // namespace

Sym vectors_of(const Schedule& s, Sym elements) {
  return ceildiv(s.shifted ? elements + Sym(s.vector - 1) : elements, s.vector);
}

namespace {

/// Is a comparison of these two the same for all elements of a vector? Their order changes at one place, and
/// vectors begin there.
bool changes_between_vectors(const Kernel& k, const Schedule& s, const Expr& e) {
  const Expr &place = k.exprs[e.args[0]], &bound = k.exprs[e.args[1]];
  if (place.kind != ExprKind::Index || bound.kind != ExprKind::Const) return false;
  const loops::LinearIn along = loops::linear_in(place.index, Kernel::dim(s.inner));
  if (!along.linear || !along.coef.is_const(1)) return false;
  switch (e.op) {
    case loops::ScalarOp::lt:
    case loops::ScalarOp::ge: return divisible(along.rest - Sym(bound.ivalue), s.vector);
    case loops::ScalarOp::le:
    case loops::ScalarOp::gt: return divisible(along.rest - Sym(bound.ivalue + 1), s.vector);
    default: return false;
  }
}

}  // namespace

bool is_same_in_vector(const Kernel& k, const Schedule& s, loops::ExprId id) {
  const Expr& e = k.exprs[id];
  if (s.vector == 1 || !(e.dims >> s.inner & 1)) return true;
  if (e.kind != ExprKind::Op || s.shifted) return false;
  if (e.args.size() == 2 && changes_between_vectors(k, s, e)) return true;
  using enum loops::ScalarOp;
  return (e.op == logical_not || e.op == bitwise_and || e.op == bitwise_or) &&
         std::all_of(e.args.begin(), e.args.end(),
                     [&](loops::ExprId a) { return is_same_in_vector(k, s, a); });
}

bool is_wide(const Kernel& k, const Schedule& s, Sym index, const std::vector<GatherTerm>& gather,
             loops::ExprId mask) {
  if (s.vector == 1) return false;
  const uint32_t inner = 1u << s.inner;
  const loops::LinearIn along = loops::linear_in(index, Kernel::dim(s.inner));
  if (!along.linear || !along.coef.is_const(1) || !divisible(along.rest - s.shift, s.vector)) return false;
  if (mask != loops::kNone && !is_same_in_vector(k, s, mask)) return false;
  return std::all_of(gather.begin(), gather.end(), [&](const GatherTerm& g) {
    return !(k.exprs[g.value].dims & inner) && divisible(g.coef, s.vector);
  });
}

/// 4 KB, less the count, the report and a few scratches.
constexpr size_t kMostArguments = 500;

std::string refusal(const Kernel& k) {
  for (const loops::Buffer& b : k.buffers)
    if (is_opaque(b.dtype)) return std::string(dtype_name(b.dtype)) + ", which no kernel computes with";
  if (k.buffers.size() + k.symbols.size() > kMostArguments) return "more arguments than a launch takes";
  for (const Expr& e : k.exprs) {
    if (e.kind == ExprKind::Acc) return "it ends a contraction, whose sums are not CUDA code";
  }
  return "";
}

namespace {

/// Of a dimension, for all turns of the loops around it: a launch has no values for their variables. Only the
/// chunks of a split reduction have such sizes, and the first of them is the longest.
Sym at_most(const Kernel& k, Sym size) {
  for (int d = 0; d < static_cast<int>(k.dims.size()); ++d)
    size = substitute(size, [&](Sym s) { return s == Kernel::dim(d) ? Sym(0) : s; });
  return size;
}

}  // namespace

Schedule schedule(const Kernel& k, const ScheduleOptions& options) {
  Schedule s;
  s.threads = threads(s.threads, options);
  const uint32_t row = reduced_dims(k);
  Sym all = 1;
  for (int d = 0; d < static_cast<int>(k.dims.size()); ++d) {
    (row >> d & 1 ? s.row : s.outer).push_back(d);
    all *= at_most(k, k.dims[d].size);
  }
  // Room for the positions of threads beyond the end.
  const int64_t most = upper_bound(all);
  const bool known = most > 0 && most <= (int64_t{1} << 31);
  s.narrow = known || (options.narrow && !all.is_const());
  if (s.narrow && !known) s.points = all;
  if (k.has_scans())
    schedule_scans(k, &s);
  else if (row)
    schedule_rows(k, options, &s);
  else
    schedule_points(k, options, &s);
  s.sweeps = plan_sweeps(k, s);
  return s;
}

int64_t turns_of(const Kernel& k, const Schedule& s) {
  const Sym length = points(k, s.row);
  const int64_t steps = (s.way == Mapping::Columns ? length : vectors_of(s, length)).value();
  return (steps + s.group - 1) / s.group;
}

int64_t shared_bytes(const Kernel& k, const Schedule& s) {
  if (!s.in_shared) return 0;
  return turns_of(k, s) * s.threads * s.vector * kept_bytes(k, s.sweeps);
}

bool is_turned(const Schedule& s, const Expr& load) {
  return s.way == Mapping::Tile && runs_across(load, s.inner) == s.across;
}

int row_of_square(const Schedule& s, DType dtype) { return s.tile + std::max(1, 4 / dtype_bytes(dtype)); }

namespace {

std::string who(const Schedule& s) {
  switch (s.way) {
    case Mapping::Points: return "pointwise";
    case Mapping::Tile: return "pointwise, squares of " + std::to_string(s.tile) + " turned in shared memory";
    case Mapping::Thread: return "one thread per row";
    case Mapping::Warp: return "one warp per row";
    case Mapping::Block: return "one block per row";
    case Mapping::Columns:
      return std::to_string(s.rows()) + " x " + std::to_string(s.group) + " threads on rows side by side";
  }
  return "";
}

}  // namespace

std::string print(const Schedule& s) {
  std::string text = who(s);
  if (s.scans) text += ", scanned";
  text += ", " + std::to_string(s.vector) + (s.vector == 1 ? " element" : " elements") + " per access";
  if (s.shifted) text += ", rows that begin between accesses";
  if (s.held) text += ", row held in registers";
  if (s.in_shared) text += ", row held in shared memory";
  if (s.cluster > 1) text += " of " + std::to_string(s.cluster) + " blocks";
  return text + "; " + s.blocks.str() + " blocks of " + std::to_string(s.threads) + " threads";
}

}  // namespace bolt::codegen::cuda

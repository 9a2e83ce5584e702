// codegen/cuda/parts.cpp
// See parts.h.

#include "codegen/cuda/parts.h"

#include <algorithm>
#include <functional>

#include "loops/analysis.h"
#include "loops/kernel_ops.h"
#include "loops/normalise.h"

namespace bolt::codegen::cuda {

using loops::Expr;
using loops::ExprId;
using loops::ExprKind;
using loops::Kernel;
using loops::kNone;

namespace {

constexpr int64_t kEnoughBlocks = 128;   // about one a multiprocessor of a large device
constexpr int64_t kWantedBlocks = 1024;  // of chunks: several a multiprocessor, so that they end together
constexpr int64_t kLeastRows = 128;  // of a chunk of columns: partial results are a small part of the input
constexpr int64_t kFewRows = 32;     // of one, where longer ones would leave much of the device idle
constexpr int64_t kLeastElements = 8192;  // of a chunk of a row
constexpr int64_t kChunksOfUnknown = 256;

/// One kernel being made from another: its dimensions are `at`, its expressions come over as they are asked
/// for.
class Copy {
 public:
  using At = std::function<Sym(int)>;
  /// `shift`: how many dimensions stand before those of `from`.
  Copy(const Kernel& from, int shift, At at) : from_(from), shift_(shift), at_(std::move(at)) {
    made_.symbols = from.symbols;
    made_.name = from.name;
    place_.assign(from.exprs.size(), kNone);
  }

  Kernel& kernel() { return made_; }
  /// Asked before an expression comes over: what stands for it here, or kNone.
  std::function<ExprId(Copy&, ExprId)> given;
  /// The expression stands for `id` from now on.
  void set(ExprId id, ExprId made) { place_[id] = made; }

  ExprId expr(ExprId id) {
    ExprId& known = place_[id];
    if (known == kNone && given) known = given(*this, id);
    if (known != kNone) return known;
    Expr e = from_.exprs[id];
    each_operand(e, [&](ExprId& a) { a = expr(a); });
    e.index = index(e.index);
    if (e.buffer >= 0) e.buffer = buffer(e.buffer);
    e.reduce_dims <<= shift_;
    return place_[id] = made_.add(std::move(e));
  }
  void store(const loops::Store& st) {
    loops::Store s = st;
    each_operand(s, [&](ExprId& a) { a = expr(a); });
    s.index = index(s.index);
    s.buffer = buffer(s.buffer);
    made_.stores.push_back(std::move(s));
  }
  /// The made kernel's number of a buffer of the whole.
  int buffer(int whole) {
    const loops::Buffer& b = from_.buffers[whole];
    return number(whole, b.dtype, b.role);
  }
  int scratch(size_t which, DType t, loops::BufferRole role) {
    return number(static_cast<int>(from_.buffers.size() + which), t, role);
  }
  Sym index(Sym s) const {
    return substitute(s, [&](Sym symbol) {
      for (int d = 0; d < static_cast<int>(from_.dims.size()); ++d)
        if (symbol == Kernel::dim(d)) return at_(d);
      return symbol;
    });
  }

  /// Dimensions that nothing varies over are of one index; who is reduced is marked.
  Part done() {
    uint32_t used = 0, reduced = 0;
    for (const Expr& e : made_.exprs) {
      used |= e.dims | e.reduce_dims;
      reduced |= e.reduce_dims;
    }
    for (const loops::Store& s : made_.stores) used |= made_.varies(s.index);
    for (size_t d = 0; d < made_.dims.size(); ++d) {
      if (!(used >> d & 1)) made_.dims[d].size = 1;
      made_.dims[d].reduce = reduced >> d & 1;
    }
    for (size_t i = 0; i < made_.buffers.size(); ++i) made_.buffers[i].role = role(static_cast<int>(i));
    return {loops::normalise(made_), std::move(buffers_)};
  }

 private:
  int number(int whole, DType t, loops::BufferRole role) {
    const auto at = std::find(buffers_.begin(), buffers_.end(), whole);
    if (at != buffers_.end()) return static_cast<int>(at - buffers_.begin());
    buffers_.push_back(whole);
    made_.buffers.push_back({t, role, ""});
    return static_cast<int>(buffers_.size()) - 1;
  }
  /// A part may only read what the whole kernel writes, too.
  loops::BufferRole role(int buffer) const {
    const bool in = std::any_of(made_.exprs.begin(), made_.exprs.end(), [&](const Expr& e) {
      return e.kind == ExprKind::Load && e.buffer == buffer;
    });
    const bool out = std::any_of(made_.stores.begin(), made_.stores.end(),
                                 [&](const loops::Store& s) { return s.buffer == buffer; });
    return in && out ? loops::BufferRole::InOut : out ? loops::BufferRole::Out : loops::BufferRole::In;
  }

  const Kernel& from_;
  const int shift_;
  const At at_;
  Kernel made_;
  std::vector<ExprId> place_;
  std::vector<int> buffers_;
};

Sym same_dim(int d) { return Kernel::dim(d); }

/// A reduced dimension cut into `count` chunks of `inner` indices, the last ones perhaps shorter or empty.
struct Cut {
  int dim;
  Sym count, inner;
};

/// Nothing is cut, or one dimension, or that and others into their single indices.
struct Chunks {
  std::vector<Cut> cuts;

  bool none() const { return cuts.empty(); }
  Sym count() const {
    Sym n = 1;
    for (const Cut& cut : cuts) n *= cut.count;
    return n;
  }
  /// A chunk's number; `at`: that of the i-th cut.
  template <typename At>
  Sym number(At at) const {
    Sym n = 0;
    for (size_t i = 0; i < cuts.size(); ++i) n = n * cuts[i].count + at(i);
    return n;
  }
  const Cut* of(int dim) const {
    const auto it = std::ranges::find(cuts, dim, &Cut::dim);
    return it == cuts.end() ? nullptr : &*it;
  }
};

class Splitter {
 public:
  Splitter(Kernel k, const ScheduleOptions& options) : k_(std::move(k)), options_(options) {
    known_.assign(k_.exprs.size(), -1);
    lies_.assign(k_.exprs.size(), nullptr);
  }

  Parts run() {
    for (std::vector<ExprId> group; !(group = next_group()).empty();) {
      const Chunks chunks = choose_chunks(group);
      if (chunks.none() && !several_) break;
      if (chunks.none()) {
        keep(group, reduce_whole(group));
      } else {
        const Stores stores = ending(group);
        const std::vector<const loops::Store*> first = stores.ends ? stores.at_once : read_later(group);
        const std::vector<size_t> partial = reduce_chunks(group, chunks, first);
        if (stores.ends) {
          out_.list.push_back(last_over_chunks(group, partial, chunks, stores.late));
          return std::move(out_);
        }
        for (const loops::Store* s : first) lies_[s->value] = s;
        keep(group, reduce_partial(group, partial, chunks));
      }
    }
    if (out_.list.empty()) return {{whole()}, {}, 0};
    out_.list.push_back(last());
    return std::move(out_);
  }

 private:
  const Expr& expr(ExprId id) const { return k_.exprs[id]; }
  bool known(ExprId id) const { return known_[id] >= 0; }
  /// Marks by expression.
  std::vector<bool> only(const std::vector<ExprId>& ids) const {
    std::vector<bool> marked(k_.exprs.size(), false);
    for (ExprId id : ids) marked[id] = true;
    return marked;
  }

  Part whole() const {
    Part p{k_, {}};
    for (int i = 0; i < static_cast<int>(k_.buffers.size()); ++i) p.buffers.push_back(i);
    return p;
  }

  /// Reductions still to be made that wait for no other, over the dimensions of the first. Sets `several_`
  /// where others run over other dimensions.
  std::vector<ExprId> next_group() {
    const std::vector<bool> live =
        loops::with_operands(k_, loops::taken_by_stores(k_), [&](ExprId id) { return known(id); });
    std::vector<char> waits(k_.exprs.size(), 0);
    std::vector<ExprId> group;
    several_ = false;
    pending_ = 0;
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      if (!live[i] || known(static_cast<ExprId>(i))) continue;
      each_operand(k_.exprs[i], [&](ExprId a) {
        if (!known(a) && (waits[a] || expr(a).kind == ExprKind::Reduce)) waits[i] = 1;
      });
      if (k_.exprs[i].kind != ExprKind::Reduce) continue;
      ++pending_;
      if (!group.empty() && expr(group[0]).reduce_dims != k_.exprs[i].reduce_dims)
        several_ = true;
      else if (!waits[i])
        group.push_back(static_cast<ExprId>(i));
    }
    return group;
  }

  Sym size(int d) const { return k_.dims[d].size; }
  Sym points(uint32_t dims) const {
    Sym n = 1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (dims >> d & 1) n *= size(d);
    return n;
  }

  /// Whether the group leaves the device idle, and how to cut it if so. Extremes with their position stay
  /// whole.
  Chunks choose_chunks(const std::vector<ExprId>& group) const {
    const Expr& first = expr(group[0]);
    for (ExprId id : group)
      if (loops::is_arg_reduce(expr(id).reduce_op) || expr(id).dims != first.dims) return {};
    const Schedule s = fewest_blocks(group);
    if (!s.blocks.is_const() || s.blocks.value() >= kEnoughBlocks || !options_.split) return {};
    const Sym length = points(first.reduce_dims), all = length * points(first.dims);
    if (all.is_const() && all.value() < kWorthElements) return {};
    return cut(first.reduce_dims, s.way == Mapping::Columns, s.blocks.value(), length);
  }

  /// How the group would be computed. With what else the kernel makes of each element it may go another way,
  /// by fewer blocks: columns, where the sums alone read what lies in rows.
  Schedule fewest_blocks(const std::vector<ExprId>& group) const {
    Schedule s = schedule(alone(group), options_);
    if (several_ || !out_.list.empty() || pending_ > group.size()) return s;
    Schedule whole = schedule(k_, options_);
    if (!s.blocks.is_const() || !whole.blocks.is_const()) return s;
    return whole.blocks.value() < s.blocks.value() ? whole : s;
  }

  /// The outermost reduced dimension that is long enough, so that what is read stays in long runs, or else
  /// the longest.
  int dim_to_cut(uint32_t reduced, int64_t wanted) const {
    int best = -1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      if (!(reduced >> d & 1)) continue;
      if (!size(d).is_const() || size(d).value() >= wanted) return d;
      if (best < 0 || size(d).value() > size(best).value()) best = d;
    }
    return best;
  }

  Chunks cut(uint32_t reduced, bool columns, int64_t blocks, Sym length) const {
    const int64_t wanted = (kWantedBlocks + blocks - 1) / blocks;
    const int dim = dim_to_cut(reduced, wanted);
    const Sym n = size(dim);
    const bool last = (reduced >> dim) == 1;
    // Whole steps of a block along a row; rows that a block of columns adds at once.
    const int64_t multiple = columns ? 8 : last ? 512 : 1;
    if (!n.is_const())
      return {{{dim, kChunksOfUnknown, ceildiv(n, kChunksOfUnknown * multiple) * Sym(multiple)}}};
    int64_t least_elements = columns ? kLeastRows : kLeastElements;
    if (columns && length.is_const() && length.value() / kLeastRows * blocks < kEnoughBlocks)
      least_elements = kFewRows;
    std::vector<Cut> cuts = n.value() < wanted ? single_indices(reduced, dim, wanted, length, least_elements)
                                               : std::vector<Cut>();
    const int64_t chunks = Chunks{cuts}.count().value();
    const int64_t others = std::max<int64_t>(1, length.value_or(n.value()) / n.value() / chunks);
    const int64_t least = std::max<int64_t>(1, least_elements / others);
    const int64_t more = (wanted + chunks - 1) / chunks;
    int64_t inner = std::max((n.value() + more - 1) / more, std::min(least, n.value()));
    if (inner >= multiple) inner = std::min((inner + multiple - 1) / multiple * multiple, n.value());
    const int64_t count = (n.value() + inner - 1) / inner;
    if (count * chunks < 2) return {};
    // A chunk's length is a function of the first number alone.
    cuts.insert(cuts.begin(), {dim, count, inner});
    return {std::move(cuts)};
  }

  /// Where no dimension alone has as many chunks as are wanted: outer ones are cut into their indices while
  /// enough is left of a chunk.
  std::vector<Cut> single_indices(uint32_t reduced, int longest, int64_t wanted, Sym length,
                                  int64_t least_elements) const {
    std::vector<Cut> cuts;
    if (!length.is_const()) return cuts;
    int64_t chunks = 1;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      if (!(reduced >> d & 1) || d == longest) continue;
      const int64_t more = chunks * size(d).value();
      if (more > wanted || length.value() / more < least_elements) break;
      cuts.push_back({d, size(d), 1});
      chunks = more;
    }
    return cuts;
  }

  // ---- scratch: one array for each reduction of a group, over [chunk,] its dimensions

  size_t new_scratch(DType t, Sym elements) {
    out_.scratch.push_back({t, out_.scratch_bytes});
    out_.scratch_bytes += ceildiv(elements * Sym(dtype_bytes(t)), 256) * Sym(256);
    return out_.scratch.size() - 1;
  }
  Sym scratch_index(const Expr& e, Sym at, const std::function<Sym(int)>& dim) const {
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (e.dims >> d & 1) at = at * size(d) + dim(d);
    return at;
  }
  ExprId load_scratch(Copy& c, size_t scratch, DType t, Sym index) const {
    return load(c, c.scratch(scratch, t, loops::BufferRole::In), t, index);
  }
  /// `buffer`: of the kernel that is made.
  static ExprId load(Copy& c, int buffer, DType t, Sym index) {
    Expr e{};
    e.kind = ExprKind::Load;
    e.dtype = t;
    e.buffer = buffer;
    e.index = index;
    return c.kernel().add(std::move(e));
  }
  // ---- parts

  /// The whole kernel's dimensions; results of earlier parts are loads.
  Copy same_space() const {
    Copy c(k_, 0, same_dim);
    c.kernel().dims = k_.dims;
    load_known(c, same_dim);
    return c;
  }
  void load_known(Copy& c, std::function<Sym(int)> dim) const {
    c.given = [this, dim = std::move(dim)](Copy& to, ExprId id) {
      if (const loops::Store* s = lies_[id])
        return load(to, to.buffer(s->buffer), expr(id).dtype, to.index(s->index));
      const int scratch = known_[id];
      if (scratch < 0) return kNone;
      return load_scratch(to, static_cast<size_t>(scratch), expr(id).dtype, scratch_index(expr(id), 0, dim));
    };
  }

  /// The group as a kernel of its own, to ask for its schedule.
  Kernel alone(const std::vector<ExprId>& group) const {
    Copy c = same_space();
    for (size_t i = 0; i < group.size(); ++i) store_result(c, group[i], out_.scratch.size() + i, 0, same_dim);
    return c.done().kernel;
  }
  void store_result(Copy& c, ExprId id, size_t scratch, Sym at, const std::function<Sym(int)>& dim) const {
    const Expr& e = expr(id);
    const ExprId made = c.expr(id);
    c.kernel().stores.push_back(
        {c.scratch(scratch, e.dtype, loops::BufferRole::Out), scratch_index(e, at, dim), made, {}, kNone});
  }

  std::vector<size_t> reduce_whole(const std::vector<ExprId>& group) {
    std::vector<size_t> to;
    Copy c = same_space();
    for (ExprId id : group) {
      to.push_back(new_scratch(expr(id).dtype, points(expr(id).dims)));
      store_result(c, id, to.back(), 0, same_dim);
    }
    out_.list.push_back(c.done());
    return to;
  }

  // The first dimensions are the cuts' numbers, the others move up.
  std::vector<size_t> reduce_chunks(const std::vector<ExprId>& group, const Chunks& chunks,
                                    const std::vector<const loops::Store*>& stores) {
    const int shift = static_cast<int>(chunks.cuts.size());
    auto number = [](size_t cut) { return Kernel::dim(static_cast<int>(cut)); };
    auto moved = [shift](int d) { return Kernel::dim(d + shift); };
    auto begin_of = [&](const Cut& cut) {
      return number(static_cast<size_t>(&cut - chunks.cuts.data())) * cut.inner;
    };
    Copy c(k_, shift, [&](int d) {
      const Cut* cut = chunks.of(d);
      return cut ? begin_of(*cut) + moved(d) : moved(d);
    });
    std::vector<loops::Dim>& dims = c.kernel().dims;
    dims = k_.dims;
    for (const Cut& cut : chunks.cuts) dims[cut.dim].size = length_of(cut, begin_of(cut));
    for (size_t i = chunks.cuts.size(); i-- > 0;)
      dims.insert(dims.begin(), loops::Dim{chunks.cuts[i].count, false});
    load_known(c, moved);
    std::vector<size_t> to;
    for (ExprId id : group) {
      to.push_back(new_scratch(expr(id).dtype, chunks.count() * points(expr(id).dims)));
      store_result(c, id, to.back(), chunks.number(number), moved);
    }
    for (const loops::Store* s : stores) c.store(*s);
    out_.list.push_back(c.done());
    return to;
  }
  Sym length_of(const Cut& cut, Sym begin) const {
    const Sym n = size(cut.dim);
    if (n.is_const() && n.value() % cut.inner.value() == 0) return cut.inner;
    return max(min(cut.inner, n - begin), 0);
  }

  /// A space whose cut dimensions count chunks; other reduced ones are gone.
  Copy chunk_space(const std::vector<ExprId>& group, const std::vector<size_t>& partial,
                   const Chunks& chunks) const {
    Copy c = same_space();
    const uint32_t reduced = expr(group[0]).reduce_dims;
    uint32_t counting = 0;
    for (const Cut& cut : chunks.cuts) counting |= 1u << cut.dim;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d) {
      const Cut* cut = chunks.of(d);
      if (reduced >> d & 1) c.kernel().dims[d].size = cut ? cut->count : Sym(1);
    }
    for (size_t i = 0; i < group.size(); ++i) {
      Expr reduce = expr(group[i]);
      const Sym number = chunks.number([&](size_t cut) { return Kernel::dim(chunks.cuts[cut].dim); });
      reduce.args = {load_scratch(c, partial[i], reduce.dtype, scratch_index(reduce, number, same_dim))};
      reduce.reduce_dims = counting;
      c.set(group[i], c.kernel().add(std::move(reduce)));
    }
    return c;
  }
  std::vector<size_t> reduce_partial(const std::vector<ExprId>& group, const std::vector<size_t>& partial,
                                     const Chunks& chunks) {
    Copy c = chunk_space(group, partial, chunks);
    std::vector<size_t> to;
    for (ExprId id : group) {
      to.push_back(new_scratch(expr(id).dtype, points(expr(id).dims)));
      store_result(c, id, to.back(), 0, same_dim);
    }
    out_.list.push_back(c.done());
    return to;
  }
  /// How the kernel ends once a group's chunks are reduced.
  struct Stores {
    /// The rest is done once a result of the group, so that it can stand behind its last step.
    bool ends = false;
    std::vector<const loops::Store*> at_once, late;  // those that wait for no chunk, and the others
  };
  Stores ending(const std::vector<ExprId>& group) const {
    if (pending_ != group.size()) return {};
    const uint32_t reduced = expr(group[0]).reduce_dims;
    std::vector<bool> waits = only(group);  // for a result of the group
    for (size_t i = 0; i < k_.exprs.size(); ++i) {
      if (waits[i] || known(static_cast<ExprId>(i))) continue;
      each_operand(k_.exprs[i], [&](ExprId a) { waits[i] = waits[i] || waits[a]; });
    }
    Stores found{true, {}, {}};
    for (const loops::Store& s : k_.stores) {
      if (is_stored(s)) continue;
      uint32_t dims = k_.varies(s.index);
      bool late = false;
      each_operand(s, [&](ExprId id) {
        dims |= expr(id).dims;
        late |= waits[id];
      });
      late |= (dims & reduced) == 0;
      if (late && (dims & reduced)) return {};
      if (!late && reads(s.buffer)) return {};  // the late ones, too, and then it is another value
      (late ? found.late : found.at_once).push_back(&s);
    }
    return found;
  }
  bool is_stored(const loops::Store& s) const { return lies_[s.value] == &s; }

  /// What the kernel stores of each element anyway, made of more bytes than it has on the way to the group's
  /// results: stored at once, the parts behind read it instead of all that, as a sum of nine places.
  std::vector<const loops::Store*> read_later(const std::vector<ExprId>& group) const {
    const std::vector<bool> asked = loops::with_operands(k_, only(group), [](ExprId) { return false; });
    uint32_t all = 0;
    for (int d = 0; d < static_cast<int>(k_.dims.size()); ++d)
      if (!size(d).is_const(1)) all |= 1u << d;
    std::vector<const loops::Store*> found;
    for (const loops::Store& s : k_.stores) {
      const Expr& value = expr(s.value);
      if (!asked[s.value] || lies_[s.value] || value.dims != all || k_.varies(s.index) != all ||
          s.mask != kNone || !s.gather.empty() || s.into != loops::Into::Over || reads(s.buffer))
        continue;
      if (bytes_of_elements(s.value, all) > dtype_bytes(value.dtype)) found.push_back(&s);
    }
    return found;
  }
  /// That one element of the value is read of.
  int64_t bytes_of_elements(ExprId value, uint32_t all) const {
    const auto lies = [&](ExprId id) { return known(id) || lies_[id]; };
    const std::vector<bool> asked = loops::with_operands(k_, only({value}), lies);
    int64_t bytes = 0;
    for (size_t i = 0; i <= static_cast<size_t>(value); ++i) {
      const Expr& e = k_.exprs[i];
      if (asked[i] && !known(static_cast<ExprId>(i)) && e.kind == ExprKind::Load && k_.varies(e.index) == all)
        bytes += dtype_bytes(e.dtype);
    }
    return bytes;
  }
  bool reads(int buffer) const {
    return std::any_of(k_.exprs.begin(), k_.exprs.end(),
                       [&](const Expr& e) { return e.kind == ExprKind::Load && e.buffer == buffer; });
  }
  Part last_over_chunks(const std::vector<ExprId>& group, const std::vector<size_t>& partial,
                        const Chunks& chunks, const std::vector<const loops::Store*>& stores) const {
    Copy c = chunk_space(group, partial, chunks);
    for (const loops::Store* s : stores) c.store(*s);
    return c.done();
  }
  Part last() const {
    Copy c = same_space();
    for (const loops::Store& s : k_.stores)
      if (!is_stored(s)) c.store(s);
    return c.done();
  }

  void keep(const std::vector<ExprId>& group, const std::vector<size_t>& scratch) {
    for (size_t i = 0; i < group.size(); ++i) known_[group[i]] = static_cast<int>(scratch[i]);
  }

  const Kernel k_;
  const ScheduleOptions& options_;
  std::vector<int> known_;                 // by expression: the scratch that holds it, or -1
  std::vector<const loops::Store*> lies_;  // by expression: the store by which an earlier part has left it
  bool several_ = false;
  size_t pending_ = 0;
  Parts out_;
};

/// A result that was rounded where the program says so is rounded again for its store: bf16 -> f32 -> bf16 is
/// the first bf16. What nobody uses any more is not computed (sweeps.h).
Kernel without_round_trips(Kernel k) {
  auto source = [&](ExprId id) {
    const Expr& narrow = k.exprs[id];
    if (narrow.kind != ExprKind::Cast) return id;
    const Expr& wide = k.exprs[narrow.args[0]];
    if (wide.kind != ExprKind::Cast || !is_float(wide.dtype)) return id;
    const DType from = k.exprs[wide.args[0]].dtype;
    const bool exact = is_float(from) && dtype_bytes(from) < dtype_bytes(wide.dtype);
    return exact && from == narrow.dtype ? wide.args[0] : id;
  };
  for (Expr& e : k.exprs)
    for (ExprId& a : e.args) a = source(a);
  for (loops::Store& s : k.stores) s.value = source(s.value);
  return k;
}

}  // namespace

std::vector<char> Part::by_buffer(const std::vector<char>& of_whole) const {
  if (of_whole.empty()) return {};
  std::vector<char> here;
  for (int b : buffers) {
    const auto whole = static_cast<size_t>(b);
    here.push_back(whole < of_whole.size() ? of_whole[whole] : '\0');
  }
  return here;
}

Parts parts(const Kernel& kernel, const ScheduleOptions& options) {
  return Splitter(without_round_trips(kernel), options).run();
}

}  // namespace bolt::codegen::cuda

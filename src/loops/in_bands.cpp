// loops/in_bands.cpp
#include "loops/in_bands.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "graph/device_facts.h"
#include "loops/analysis.h"
#include "loops/in_place.h"

namespace bolt::loops {
namespace {

using graph::Op;
using graph::Type;

/// Fewer bands save little, and each one more has the product's other operand read again.
constexpr int64_t kFewestBands = 4;
/// Rows that a block of threads of a library's product works at.
constexpr int64_t kTile = 128;

bool has_known_sizes(const Type& t) {
  const auto is_known = [](Sym s) { return s.is_const(); };
  return std::ranges::all_of(t.sizes, is_known) && std::ranges::all_of(t.strides, is_known);
}

int64_t bytes_of(const Type& t) {
  const Sym elements = t.numel();
  return elements.is_const() ? elements.value() * dtype_bytes(t.dtype) : 0;
}

/// A tensor as rows at equal distances, the last dimension being the columns.
struct Rows {
  int64_t count = 0, step = 0, length = 0;
};
std::optional<Rows> rows_of(const Type& t) {
  if (t.rank() < 2 || !has_known_sizes(t)) return std::nullopt;
  Rows r{1, 0, t.sizes.back().value()};
  if (!t.strides.back().is_const(1)) return std::nullopt;
  for (int d = t.rank() - 1; d-- > 0;) {
    const int64_t size = t.sizes[d].value(), stride = t.strides[d].value();
    if (size == 1) continue;
    if (r.count == 1) r.step = stride;
    if (stride != r.step * r.count) return std::nullopt;
    r.count *= size;
  }
  return r.step >= r.length ? std::optional(r) : std::nullopt;
}

/// The largest value of an index that is a sum of loop variables and of places that are checked, each a
/// number of times; nothing where it is not, or may be negative.
std::optional<int64_t> largest(Sym index, const std::vector<GatherTerm>& gather, const Kernel& k) {
  int64_t most = 0;
  const std::vector<SymTerm> terms = sum_terms(index, &most);
  if (most < 0) return std::nullopt;
  for (const SymTerm& term : terms) {
    int d = 0;
    while (d < static_cast<int>(k.dims.size()) && term.term != Kernel::dim(d)) ++d;
    if (term.coef < 0 || d == static_cast<int>(k.dims.size()) || !k.dims[d].size.is_const())
      return std::nullopt;
    most += term.coef * (k.dims[d].size.value() - 1);
  }
  for (const GatherTerm& g : gather) {
    const Expr& place = k.exprs[g.value];
    if (place.kind != ExprKind::Check || place.mask != kNone || !g.coef.is_const() || g.coef.value() < 0)
      return std::nullopt;
    const Expr& end = k.exprs[place.args[1]];
    if (end.kind != ExprKind::Const) return std::nullopt;
    most += g.coef.value() * (end.ivalue - 1);
  }
  return most;
}

class Bands {
 public:
  Bands(Plan& p, const PlanOptions& options) : p_(p), options_(options) {}

  void run() {
    find_uses();
    std::map<size_t, std::pair<size_t, Cut>> cuts;  // by reader: the product, which goes there
    std::set<size_t> moved;
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      if (!is_large_product(p_.steps[i])) continue;
      const size_t reader = reader_of(i);
      if (reader == p_.steps.size() || cuts.contains(reader)) continue;
      if (auto cut = cut_of(p_.steps[i], p_.steps[reader])) {
        cuts.emplace(reader, std::pair(i, std::move(*cut)));
        moved.insert(i);
      }
    }
    std::vector<Step> steps;
    std::set<int, std::greater<>> emptied;  // the last one first, so that the others keep their numbers
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      if (moved.contains(i)) continue;
      const auto at = cuts.find(i);
      if (at == cuts.end()) {
        steps.push_back(p_.steps[i]);
        continue;
      }
      put(p_.steps[at->second.first], p_.steps[i], at->second.second, steps);
      emptied.insert(p_.steps[i].kernel);
    }
    p_.steps = std::move(steps);
    for (int kernel : emptied) drop_unused(p_, kernel);
  }

 private:
  /// How a product and the kernel behind it are cut.
  struct Cut {
    int64_t units, band;         ///< of the kernel's outermost dimension: all, and those of a band
    int64_t rows;                ///< of the product, a unit
    Rows operand, result;        ///< of the product
    std::vector<int64_t> steps;  ///< by buffer of the kernel: elements from one unit to the next
  };

  PlanBuffer& buffer(int b) { return p_.buffers[b]; }
  int memory(int b) const { return memory_of(p_, b); }
  /// From its memory's first element.
  std::optional<int64_t> offset(int b) const {
    if (p_.buffers[b].kind != BufferKind::Alias) return 0;
    const Sym at = p_.buffers[b].offset;
    return at.is_const() ? std::optional(at.value()) : std::nullopt;
  }

  void find_uses() {
    uses_.assign(p_.buffers.size(), 0);
    in_place_.assign(p_.buffers.size(), 0);
    for (const Step& s : p_.steps)
      for (int b : s.buffers) ++uses_[memory(b)];
    for (const PlanOutput& o : p_.outputs)
      if (o.buffer >= 0) ++uses_[memory(o.buffer)];
    for (size_t b = 0; b < p_.buffers.size(); ++b)
      if (const int over = p_.buffers[b].over; over >= 0) in_place_[b] = in_place_[memory(over)] = 1;
  }

  bool touches(const Step& s, int owner) const {
    return std::ranges::any_of(s.buffers, [&](int b) { return memory(b) == owner; });
  }
  /// The next step that touches what a library's call makes, where the call may as well be done; the end:
  /// there is none.
  size_t reader_of(size_t at) {
    const Step& call = p_.steps[at];
    const size_t none = p_.steps.size();
    for (int b : call.buffers)
      if (in_place_[memory(b)]) return none;
    for (size_t i = at + 1; i < none; ++i) {
      const Step& s = p_.steps[i];
      if (touches(s, memory(call.buffers.back()))) return i;
      for (size_t slot = static_cast<size_t>(s.operand_count); slot < s.buffers.size(); ++slot) {
        const int stored = memory(s.buffers[slot]);
        if (buffer(stored).kind == BufferKind::Input || touches(call, stored)) return none;
      }
    }
    return none;
  }

  bool is_large_product(const Step& s) {
    constexpr std::array kProducts{Op::linear, Op::linear_of_parts, Op::matmul};
    if (s.kind != StepKind::Library || std::ranges::find(kProducts, s.node->op) == kProducts.end())
      return false;
    const int made = s.buffers.back();
    const graph::BandBytes bands = bands_on(s.device);
    return bands.most > 0 && bytes_of(buffer(made).type) >= kFewestBands * bands.least &&
           buffer(made).kind == BufferKind::Temp && buffer(made).owned_by_step && uses_[made] == 2;
  }
  graph::BandBytes bands_on(graph::Device device) const {
    return options_.bands.value_or(graph::facts_of(device).bands);
  }

  std::optional<Cut> cut_of(const Step& product, const Step& reader) {
    const int made = product.buffers.back();
    const int64_t bytes = bytes_of(buffer(made).type);
    if (reader.kind != StepKind::Kernel) return std::nullopt;
    if (buffer(product.buffers[1]).type.rank() != 2) return std::nullopt;
    const auto operand = rows_of(buffer(product.buffers[0]).type), result = rows_of(buffer(made).type);
    if (!operand || !result || operand->count != result->count || !offset(product.buffers[0]))
      return std::nullopt;

    const Kernel& k = p_.kernels[reader.kernel];
    if (k.dims.empty() || k.dims[0].reduce || !k.dims[0].size.is_const()) return std::nullopt;
    Cut cut{k.dims[0].size.value(), 0, 0, *operand, *result, {}};
    if (cut.units < kFewestBands || result->count % cut.units != 0) return std::nullopt;
    cut.rows = result->count / cut.units;
    const int64_t unit_bytes = cut.rows * result->step * dtype_bytes(buffer(made).type.dtype);
    cut.band =
        std::max<int64_t>(1, std::min(bytes / kFewestBands, bands_on(product.device).most) / unit_bytes);
    for (const int64_t together : {kTile, graph::kAlignedElements})
      if (cut.band > together) {
        cut.band -= cut.band % together;
        break;
      }
    if (cut.band * kFewestBands > cut.units || !steps_of(reader, made, cut)) return std::nullopt;
    return cut;
  }

  /// How the kernel's buffers lie along its outermost dimension. False: it cannot be cut.
  bool steps_of(const Step& reader, int made, Cut& cut) {
    const Kernel& k = p_.kernels[reader.kernel];
    std::vector<std::optional<int64_t>> steps(reader.buffers.size());
    const auto lies = [&](int slot, Sym index, const std::vector<GatherTerm>& gather) {
      const std::optional<Sym> step = coefficient(index, Kernel::dim(0));
      auto& known = steps[static_cast<size_t>(slot)];
      if (!step || !step->is_const() || step->value() < 0 || (known && *known != step->value())) return false;
      known = step->value();
      if (memory(reader.buffers[slot]) != made) return true;
      // Of a unit's rows nothing else is read.
      const auto last = largest(index - *step * Kernel::dim(0), gather, k);
      const auto begins = offset(reader.buffers[slot]);
      return last && begins && *begins + *last < *known && *known == cut.rows * cut.result.step;
    };
    for (const Expr& e : k.exprs) {
      if (e.kind == ExprKind::Index && k.varies(e.index) & 1) return false;
      if (e.kind == ExprKind::Load && !lies(e.buffer, e.index, e.gather)) return false;
    }
    for (const Store& st : k.stores)
      if (st.scatters() || !st.gather.empty() || !lies(st.buffer, st.index, {}) || *steps[st.buffer] == 0)
        return false;
    for (size_t slot = 0; slot < reader.buffers.size(); ++slot) {
      const int b = reader.buffers[slot], m = memory(b);
      if (!offset(b) || in_place_[m] || (steps[slot].value_or(0) > 0 && !has_known_sizes(buffer(m).type)))
        return false;
      if (steps[slot].value_or(0) * cut.band % graph::kAlignedElements != 0) return false;
      const bool is_stored = slot >= static_cast<size_t>(reader.operand_count);
      if (is_stored && (buffer(m).kind == BufferKind::Input || m == made)) return false;
      cut.steps.push_back(steps[slot].value_or(0));
    }
    return true;
  }

  int add(PlanBuffer b) {
    p_.buffers.push_back(std::move(b));
    return static_cast<int>(p_.buffers.size()) - 1;
  }
  /// Elements of `b` from `first` on, as a tensor of these sizes.
  int part(int b, int64_t first, Syms sizes, Syms strides) {
    PlanBuffer shown;
    shown.type = buffer(b).type;
    shown.type.sizes = std::move(sizes);
    shown.type.strides = std::move(strides);
    shown.kind = BufferKind::Alias;
    shown.offset = *offset(b) + first;
    shown.source = memory(b);
    return add(std::move(shown));
  }
  /// What a kernel needs of a buffer from an element on.
  int rest(int b, int64_t first, int64_t elements) {
    const Type& t = buffer(memory(b)).type;
    int64_t all = 1;
    for (int d = 0; d < t.rank(); ++d) all += (t.sizes[d].value() - 1) * t.strides[d].value();
    return part(b, first, {std::min(elements, all - *offset(b) - first)}, {1});
  }
  static Type rows(const Type& like, const Rows& r, int64_t count) {
    Type t = like;
    t.sizes = {count, r.length};
    t.strides = {r.step, 1};
    return t;
  }

  void put(const Step& product, const Step& reader, const Cut& cut, std::vector<Step>& steps) {
    for (int64_t first = 0; first < cut.units; first += cut.band) {
      const int64_t units = std::min(cut.band, cut.units - first), count = units * cut.rows;
      Step some = product, read = reader;
      const Type given = rows(buffer(product.buffers[0]).type, cut.operand, count);
      some.buffers[0] =
          part(product.buffers[0], first * cut.rows * cut.operand.step, given.sizes, given.strides);
      PlanBuffer made = buffer(product.buffers.back());
      made.type = rows(made.type, cut.result, count);
      some.buffers.back() = add(std::move(made));
      for (size_t slot = 0; slot < reader.buffers.size(); ++slot) {
        const int b = reader.buffers[slot];
        if (memory(b) == product.buffers.back())
          read.buffers[slot] = *offset(b) == 0
                                   ? some.buffers.back()
                                   : rest(some.buffers.back(), *offset(b), count * cut.result.step);
        else if (cut.steps[slot] > 0)
          read.buffers[slot] = rest(b, first * cut.steps[slot], units * cut.steps[slot]);
      }
      read.kernel = of_units(reader.kernel, units);
      read.alone *= static_cast<double>(units) / static_cast<double>(cut.units);
      steps.push_back(std::move(some));
      steps.push_back(std::move(read));
    }
  }
  /// The kernel over so many units.
  int of_units(int kernel, int64_t units) {
    const auto [known, fresh] = of_units_.try_emplace({kernel, units}, -1);
    if (fresh) {
      known->second = static_cast<int>(p_.kernels.size());
      Kernel k = p_.kernels[kernel];
      k.dims[0].size = units;
      k.name += "_" + std::to_string(units);
      p_.kernels.push_back(std::move(k));
    }
    return known->second;
  }

  Plan& p_;
  const PlanOptions& options_;
  std::vector<int> uses_;       ///< by memory: steps and outputs
  std::vector<char> in_place_;  ///< by buffer: it lies over another, or another over it
  std::map<std::pair<int, int64_t>, int> of_units_;
};

}  // namespace

void compute_in_bands(Plan& plan, const PlanOptions& options) { Bands(plan, options).run(); }

}  // namespace bolt::loops

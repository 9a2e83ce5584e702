// lower/lowerings/borders.cpp
// Rows for pads that repeat what is inside: reflection, replication and circular ones, and their gradients.
//
// Forward, each dimension is read at a place that is arithmetic on its own number, i the place in the result
// less the pad in front:
//
//   reflect      |i|, and past the last element n - 1 as far before it
//   replicate    i, kept in 0 .. n - 1
//   circular     i modulo n
//
// so a pad is one read of its operand. Backward, what was repeated is added where it came from, one dimension
// after the other.
#include <algorithm>

#include "graph/device_facts.h"
#include "lower/families.h"
#include "lower/formula.h"

namespace bolt::lower {
namespace {

enum class Border : uint8_t { Reflect, Replicate, Circular };

/// What is put around one dimension.
struct Edge {
  int64_t dim, low, high;
};

/// The amounts of `padding`, which begin with the last dimension; nullopt: some are taken away.
std::optional<std::vector<Edge>> edges_of(const std::vector<int64_t>& amounts, int64_t rank) {
  std::vector<Edge> edges;
  for (size_t i = 0; i + 1 < amounts.size(); i += 2) {
    if (amounts[i] < 0 || amounts[i + 1] < 0) return std::nullopt;
    edges.push_back({rank - 1 - static_cast<int64_t>(i / 2), amounts[i], amounts[i + 1]});
  }
  return edges;
}

/// So far back is looked for a convolution.
constexpr int kMostSteps = 32;

/// Can a dimension of n elements be continued that far? Eager raises where not.
bool reaches(Border border, const Edge& e, int64_t n) {
  if (border == Border::Reflect) return std::max(e.low, e.high) < n;
  return border == Border::Replicate ? n > 0 : std::max(e.low, e.high) <= n && n > 0;
}

Term continued(const Formula& f, Term x, const Edge& e, Border border) {
  const int64_t n = x.sizes()[e.dim].value();
  Term i = f.places(n + e.low + e.high, 0, 1);
  if (e.low != 0) i = i - static_cast<double>(e.low);
  const Term first = i.number(0), last = i.number(static_cast<double>(n - 1));
  if (border == Border::Circular)
    return taken(x, e.dim, i.with(Op::remainder, i.number(static_cast<double>(n))));
  if (border == Border::Reflect) {
    if (e.low != 0) i = larger(i, -i);
    if (e.high != 0) i = smaller(i, static_cast<double>(2 * (n - 1)) - i);
  }
  return taken(x, e.dim, clamped(i, first, last));
}

Results with_border(Call& c, Border border, const std::vector<int64_t>& amounts) {
  Term x{&c, c.tensor("self")};
  const auto edges = edges_of(amounts, x.rank());
  if (!edges || static_cast<int64_t>(edges->size()) > x.rank() || !is_read_at_places(c, "self")) return {};
  const Formula f(c, DType::I64);
  for (const Edge& e : *edges) {
    if (!reaches(border, e, x.sizes()[e.dim].value())) return {};
    if (e.low != 0 || e.high != 0) x = continued(f, x, e, border);
  }
  return {x.value};
}
Results reflection_pad(Call& c) { return with_border(c, Border::Reflect, c.integers("padding")); }
Results replication_pad(Call& c) { return with_border(c, Border::Replicate, c.integers("padding")); }
Results circular_pad(Call& c) { return with_border(c, Border::Circular, c.integers("pad")); }

// ---- gradients ----

/// So many elements at an edge are added one by one; of more the sum is a loop of its own.
constexpr int64_t kFewAtEdge = 4;

/// The sum of what was copied from one element at an edge: a slice of one element.
Term edge_sum(Term g, int64_t dim, int64_t start, int64_t length) {
  if (length > kFewAtEdge) return g.part(dim, start, length).sum({dim});
  Term sum = g.part(dim, start, 1);
  for (int64_t i = 1; i < length; ++i) sum = sum + g.part(dim, start + i, 1);
  return sum;
}

/// What was put in front and behind comes back to where it was read.
Term returned(Term g, const Edge& e, Border border, int64_t n) {
  Term all = g.part(e.dim, e.low, n);
  const int64_t behind = e.low + n;
  if (border == Border::Reflect) {
    if (e.low != 0) all = all + placed(reversed(g.part(e.dim, 0, e.low), e.dim), e.dim, 1, n);
    if (e.high != 0)
      all = all + placed(reversed(g.part(e.dim, behind, e.high), e.dim), e.dim, n - 1 - e.high, n);
    return all;
  }
  if (e.low != 0) all = all + placed(edge_sum(g, e.dim, 0, e.low), e.dim, 0, n);
  if (e.high != 0) all = all + placed(edge_sum(g, e.dim, behind, e.high), e.dim, n - 1, n);
  return all;
}

Results pad_backward(Call& c, Border border) {
  const Formula f(c);
  Term g = f("grad_output");
  const Syms& to = c.sizes("self");
  const auto edges = edges_of(c.integers("padding"), g.rank());
  if (!edges || !f.is_real()) return {};
  for (const Edge& e : *edges) {
    const int64_t n = to[e.dim].value();
    if (!reaches(border, e, n)) return {};
    if (e.low != 0 || e.high != 0) g = returned(g, e, border, n);
  }
  return f.only(g);
}
Results reflection_pad_backward(Call& c) { return pad_backward(c, Border::Reflect); }
Results replication_pad_backward(Call& c) { return pad_backward(c, Border::Replicate); }

}  // namespace

namespace {
/// Is it made of what a convolution gives, without leaving its dimensions?
bool comes_from_convolution(const Value* v) {
  for (int steps = 0; v->def && !v->def->operands.empty() && steps < kMostSteps; ++steps) {
    if (v->def->op == Op::conv) return true;
    const graph::OpKind kind = graph::op_info(v->def->op).kind;
    const bool keeps = kind == graph::OpKind::Pointwise || kind == graph::OpKind::Composite ||
                       v->def->op == Op::index_select || v->def->op == Op::upsample_nearest;
    if (!keeps) return false;
    const Value* from = v;
    for (const Value* operand : v->def->operands)
      if (operand->type.rank() == from->type.rank()) {
        v = operand;
        break;
      }
    if (v == from) return false;
  }
  return false;
}
}  // namespace

bool is_read_at_places(const Call& c, std::string_view name) {
  const Value* x = c.tensor(name);
  if (graph::facts_of(x->type.device).reads_anywhere) return true;
  const record::TensorInfo& image = c.recorded(name);
  const bool has_channels = image.sizes.size() >= 3 && image.sizes[1] > 1;
  const bool lie_innermost = has_channels && image.strides[1] == 1 && c.result_stride(0, 1) == 1;
  return lie_innermost || comes_from_convolution(x);
}

std::vector<Value*> bordered_pad(Call& c) {
  const std::string mode = c.text("mode");
  const std::vector<int64_t> amounts = c.integers("pad");
  if (mode == "reflect") return with_border(c, Border::Reflect, amounts);
  if (mode == "replicate") return with_border(c, Border::Replicate, amounts);
  return mode == "circular" ? with_border(c, Border::Circular, amounts) : Results{};
}

void add_borders(Table& t) {
  const RowsByName row{t};
  row(reflection_pad, {"reflection_pad1d", "reflection_pad2d", "reflection_pad3d"});
  row(replication_pad, {"replication_pad1d", "replication_pad2d", "replication_pad3d"});
  row(circular_pad, {"_pad_circular"});
  row(reflection_pad_backward,
      {"reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"});
  row(replication_pad_backward,
      {"replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"});
}

}  // namespace bolt::lower

// loops/roles.cpp
#include "loops/roles.h"

#include <algorithm>
#include <numeric>

#include "graph/device_facts.h"
#include "loops/again.h"
#include "loops/index_number.h"
#include "loops/units.h"
#include "support/error.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

bool is_view(const Value* v) { return v->def && kind_of(v->def) == OpKind::View; }

class Assigner {
 public:
  Assigner(const Graph& g, const PlanOptions& options) : g_(g), options_(options) {}

  Roles run() {
    size_t count = 0;
    for (const auto& in : g_.inputs) count = std::max<size_t>(count, in.value->id + 1);
    for (const auto& n : g_.nodes)
      for (const auto& v : n->outputs) count = std::max<size_t>(count, v->id + 1);
    f_.usage.users.resize(count);
    f_.usage.role.assign(count, Role::Free);
    f_.usage.materialized.assign(count, 0);
    f_.strides.resize(count);
    r_.wanted.assign(count, 0);
    find_users();
    f_.constant = find_constants(g_, options_);
    fill_results();
    first_roles();
    want_memory();
    repeat_cheap_work();
    return std::move(r_);
  }

 private:
  void find_users() {
    for (const auto& n : g_.nodes)
      for (const Value* o : n->operands) {
        auto& users = f_.usage.users[o->id];
        if (users.empty() || users.back() != n.get()) users.push_back(n.get());
      }
  }

  void first_roles() {
    for (const auto& in : g_.inputs) in_memory(in.value.get(), in.value->type.strides);
    for (const auto& n : g_.nodes) {
      if (n->outputs.empty()) continue;
      Role& role = f_.usage.role[n->out()->id];
      OpKind k = kind_of(n.get());
      role = is_call(n.get())                           ? Role::Library
             : k == OpKind::View || k == OpKind::Create ? Role::Free
             : is_index(*n)                             ? Role::Free
                                                        : Role::Fused;
      if (role == Role::Library)
        for (const auto& v : n->outputs) in_memory(v.get(), v->type.strides);
    }
  }
  /// Arithmetic on the numbers of an iota, which whoever reads at them has in its own address.
  static bool is_index(const Node& n) {
    return kind_of(&n) == OpKind::Pointwise &&
           index_number(n.out(), Index(n.out()->type.sizes.size(), Sym(0))).has_value();
  }
  void in_memory(const Value* v, const Syms& strides) {
    f_.usage.materialized[v->id] = 1;
    f_.strides[v->id] = strides;
  }

  /// What is made of nothing and only returned is made by each call: it takes less time than a copy of it.
  void fill_results() {
    for (const graph::Output& o : g_.outputs) {
      const Value* made = view_base(o.value);
      if (made->def && kind_of(made->def) == OpKind::Create && readers_of(made) == 0 &&
          is_dense(o.value->type))
        for (const Value* v = o.value; f_.constant[v->id]; v = v->def->operands[0]) {
          f_.constant[v->id] = 0;
          if (v == made) break;
        }
    }
  }

  // ---- what must lie in memory ----

  void want_memory() {
    std::vector<const Value*> operands;
    for (const auto& n : g_.nodes)
      if (is_call(n.get())) operands.insert(operands.end(), n->operands.begin(), n->operands.end());
    // Outputs first: they fix the layout of what they are, and others may look at their memory.
    for (const graph::Output& o : g_.outputs) want_output(o);
    // What is scattered into lies as the result does, whose memory it is. Of several the last decides.
    for (auto n = g_.nodes.rbegin(); n != g_.nodes.rend(); ++n)
      if (kind_of(n->get()) == OpKind::Scatter) want_base(**n);
    for (const auto& n : g_.nodes)
      if (n->op == Op::sdpa && n->operands.size() > 3) want_mask(n->operands[3]);
    // Values themselves before views of them, and what has to be copied before views of the copy: then the
    // views know what is there.
    for (const Value* v : operands)
      if (!is_view(v)) want(v);
    for (const Value* v : operands)
      if (is_view(v) && is_copied_first(v)) want_view(v);
    for (const Value* v : operands)
      if (is_view(v)) want_view(v);
  }

  void want(const Value* v) {
    if (f_.usage.materialized[v->id] || r_.wanted[v->id]) return;
    r_.wanted[v->id] = 1;
    f_.usage.role[v->id] = Role::Fused;
    if (f_.strides[v->id].empty()) f_.strides[v->id] = layout(v);
  }

  void want_base(const Node& scatter) {
    const Value *out = scatter.out(), *base = scatter.operands[0];
    if (f_.strides[out->id].empty()) f_.strides[out->id] = layout(out);
    f_.strides[base->id] = f_.strides[out->id];
    want(base);
  }

  // A library reads masks in rows. Of what lies otherwise, as a bias that was gathered from a table does, it
  // makes a copy in each call, and so it does of rows that begin between two accesses.

  static bool reads_aligned_rows(const graph::Type& mask) {
    return is_float(mask.dtype) && mask.sizes.back().is_const() &&
           graph::facts_of(mask.device).needs_aligned_rows;
  }
  /// What is not there yet is laid in such rows, what is there is copied where it is looked at as something
  /// else. Of what is expanded the inner part is enough.
  void want_mask(const Value* mask) {
    while (mask->def && mask->def->op == Op::expand) mask = mask->def->operands[0];
    const graph::Type& type = mask->type;
    if (type.rank() < 2 || is_there(mask) || another_call_reads(mask)) return;
    const Value* base = view_base(mask);
    const auto view = over_base(mask, is_there(base) ? f_.strides[base->id] : layout(base));
    const bool aligned = reads_aligned_rows(type);
    if (view && has_rows(type, view->strides, aligned)) return;
    Syms& strides = f_.strides[mask->id];
    strides = graph::contiguous_strides(type.sizes);
    if (aligned) {
      graph::Type wider = type;
      wider.sizes.back() = graph::aligned_row(type.sizes.back().value());
      strides = graph::contiguous_strides(wider.sizes);
    }
    want(mask);
  }
  /// It may expect what it is given to lie as it was recorded.
  bool another_call_reads(const Value* v) const {
    const auto& users = f_.usage.users_of(v);
    return std::any_of(users.begin(), users.end(), [&](const Node* user) {
      if (kind_of(user) == OpKind::View) return another_call_reads(user->out());
      return is_call(user) && user->op != Op::sdpa;
    });
  }
  static bool has_rows(const graph::Type& type, const Syms& strides, bool aligned) {
    for (int i = 0; i < type.rank(); ++i) {
      if (type.sizes[i].is_const(1)) continue;
      const bool is_row = i + 1 == type.rank();
      if (is_row ? !strides[i].is_const(1)
                 : aligned && !(strides[i].is_const() && strides[i].value() % graph::kAlignedElements == 0))
        return false;
    }
    return true;
  }

  /// As the recorded run had it when that is dense (channels-last stays so), else row-major.
  static Syms layout(const Value* v) {
    if (!is_view(v) && is_dense(v->type)) return v->type.strides;
    return graph::contiguous_strides(v->type.sizes);
  }

  void want_output(const graph::Output& o) {
    if (part_of_result(o, f_.strides)) return;
    const Value* v = o.value;
    const Value* base = view_base(v);
    if (o.write_to >= 0 && !is_view(v)) return want(v);
    bool there = f_.usage.materialized[base->id] || r_.wanted[base->id];
    if (there) {
      auto view = over_base(v, f_.strides[base->id]);
      if (view && (same_memory(v->type, view->strides) || o.write_to >= 0)) return;
    }
    // Overlapping elements (an expanded result) cannot be stored: the base is, and shown through strides.
    if (!there && is_view(v) && !is_dense(v->type) && over_base(v, layout(base))) return want(base);
    bool fresh = !f_.usage.materialized[v->id] && !r_.wanted[v->id];
    // Elements of a returned view may share their memory; those of what is stored for it may not.
    if (fresh && o.write_to < 0)
      f_.strides[v->id] = is_dense(v->type) ? v->type.strides : graph::contiguous_strides(v->type.sizes);
    want(v);
  }

  /// The stride of a dimension of size 1 says nothing.
  static bool same_memory(const graph::Type& t, const Syms& strides) {
    for (int i = 0; i < t.rank(); ++i)
      if (t.strides[i] != strides[i] && !t.sizes[i].is_const(1)) return false;
    return true;
  }

  bool is_there(const Value* v) const { return f_.usage.materialized[v->id] || r_.wanted[v->id]; }
  /// Is it no strided view of its base, although what it is a view of is?
  bool is_copied_first(const Value* v) const {
    const Value* base = view_base(v);
    const Syms memory = is_there(base) ? f_.strides[base->id] : layout(base);
    return !over_base(v, memory) && over_base(v->def->operands[0], memory);
  }
  void want_view(const Value* v) {
    const auto shown = shown_over(v, f_.strides);
    if (shown && is_there(shown->base)) return;
    const Value* base = view_base(v);
    if (!is_there(base) && over_base(v, layout(base))) return want(base);
    if (!shown) want(v);
  }

  // ---- cheap work is repeated ----

  /// One cheap operation on one value in memory (and numbers), read by several nodes.
  bool is_cheap(const Node& n) const {
    static constexpr Op ops[] = {Op::cast, Op::neg, Op::add, Op::sub, Op::mul, Op::logical_not, Op::eq,
                                 Op::ne,   Op::lt,  Op::le,  Op::gt,  Op::ge,  Op::abs};
    if (std::find(std::begin(ops), std::end(ops), n.op) == std::end(ops)) return false;
    int sources = 0;
    for (const Value* o : n.operands) {
      const Value* base = view_base(o);
      if (base->def && kind_of(base->def) == OpKind::Create && base->type.numel().is_const(1)) continue;
      // A part of what lies there is read once, too; what is read as something larger is not.
      const int64_t there = estimate(base->type.numel()), here = estimate(n.out()->type.numel());
      if (!f_.usage.materialized[base->id] || o->type.numel() != n.out()->type.numel() || there < here)
        return false;
      ++sources;
    }
    return sources <= 1;
  }

  /// A number made wider: where several kernels read it, the narrow one is what lies in memory.
  static bool widens(const Node& n) {
    if (n.op != Op::cast) return false;
    const DType from = n.operands[0]->type.dtype, to = n.out()->type.dtype;
    return is_float(from) && is_float(to) && dtype_bytes(from) < dtype_bytes(to);
  }

  /// Is it made of something narrower that lies in memory in any case, and of what is far smaller? A
  /// normalised image in float32 is, of the image in bfloat16 and of its statistics.
  std::optional<Again> made_of_narrower(const Value* v, size_t readers, const Lying& lying) const {
    std::optional<Again> again = computed_again(v, lying);
    if (!again || again->from.size() != 1) return std::nullopt;
    const Value* from = again->from[0];
    const double fetched = static_cast<double>(readers) * Units::bytes_of(from);
    const bool is_narrower = dtype_bytes(from->type.dtype) < dtype_bytes(v->type.dtype);
    return is_narrower && pays_again(v, *again, readers, fetched) ? again : std::nullopt;
  }
  /// What calls make and what is handed on lies in memory; no kernel knows another yet.
  Lying lying_before_merging() const {
    Lying lying{f_.usage.materialized, std::vector<int>(f_.usage.materialized.size(), Lying::kNowhereElse)};
    for (const auto& n : g_.nodes)
      for (const auto& v : n->outputs)
        if (is_kept(v.get()))
          lying.in_memory[v->id] = 1;
        else if (!r_.wanted[v->id] && !f_.constant[v->id])
          lying.made_by[v->id] = 0;
    return lying;
  }

  /// Of the value and of its views.
  size_t readers_of(const Value* v) const {
    size_t readers = 0;
    for (const Node* user : f_.usage.users_of(v))
      readers += kind_of(user) == OpKind::View ? readers_of(user->out()) : 1;
    return readers;
  }

  /// Is it handed on to a later part of the program? Then it is what waits for that part, and not what it is
  /// made of.
  bool is_kept(const Value* v) const {
    const auto& users = f_.usage.users_of(v);
    return std::any_of(users.begin(), users.end(), [&](const Node* user) {
      return user->op == Op::keep || (kind_of(user) == OpKind::View && is_kept(user->out()));
    });
  }

  void repeat_cheap_work() {
    const Lying lying = lying_before_merging();
    for (const auto& n : g_.nodes) {
      if (n->outputs.size() != 1 || kind_of(n.get()) != OpKind::Pointwise) continue;
      const Value* v = n->out();
      const size_t readers = readers_of(v);
      if (lying.made_by[v->id] < 0) continue;
      // One reader is merged with what it reads, or not: then the narrower value is stored.
      if (widens(*n) || (readers > 1 && is_cheap(*n)))
        f_.usage.role[v->id] = Role::Free;
      else if (const auto again = readers > 1 ? made_of_narrower(v, readers, lying) : std::nullopt)
        for (const Node* m : again->nodes) f_.usage.role[m->out()->id] = Role::Free;
    }
  }

  const Graph& g_;
  const PlanOptions& options_;
  Roles r_;
  Fusion& f_ = r_.fusion;
};

}  // namespace

namespace {
/// A number that is a size differs between calls, although its tensor's sizes do not.
bool attributes_known(const Node& n) {
  for (const auto& [name, value] : n.attrs)
    if (const auto* numbers = std::get_if<Syms>(&value))
      for (Sym number : *numbers)
        if (!number.is_const()) return false;
  return true;
}
}  // namespace

std::vector<char> find_constants(const Graph& g, const PlanOptions& options) {
  std::vector<char> found;
  auto set = [&](const Value* v, bool constant) {
    if (found.size() <= static_cast<size_t>(v->id)) found.resize(static_cast<size_t>(v->id) + 1);
    found[v->id] = constant;
  };
  for (const auto& in : g.inputs)
    set(in.value.get(),
        in.kind == graph::InputKind::Const || (options.fold_params && in.kind == graph::InputKind::Param));
  for (const auto& n : g.nodes) {
    // An extern may be random or have effects; only what is known to do neither is folded.
    bool constant = kind_of(n.get()) != OpKind::Extern || n->attr_or("pure", false);
    for (const Value* o : n->operands) constant &= found[o->id] != 0;
    constant &= attributes_known(*n);
    for (const auto& v : n->outputs) set(v.get(), constant && all_known(v->type.sizes));
  }
  // A scatter's result is put into the memory of its base: zeros are made anew for each call.
  for (auto n = g.nodes.rbegin(); n != g.nodes.rend(); ++n)
    if (kind_of(n->get()) == OpKind::Scatter) found[(*n)->operands[0]->id] = found[(*n)->out()->id];
  return found;
}

/// By a library, and as the result of a scatter lies?
bool is_given_fresh(const Value* base, const Value* result) {
  return base->def && graph::op_info(base->def->op).gives_fresh_memory && base->type.is_contiguous() &&
         result->type.is_contiguous();
}

void give_bases_memory(Graph& g) {
  g.renumber();
  const std::vector<int> uses = g.use_counts();
  for (const auto& n : g.nodes) {
    if (kind_of(n.get()) != OpKind::Scatter) continue;
    Value*& base = n->operands[0];
    const OpKind made = base->def ? kind_of(base->def) : OpKind::Extern;
    const bool fresh = made == OpKind::Pointwise || made == OpKind::Reduce || made == OpKind::Index ||
                       made == OpKind::Scan || made == OpKind::Scatter || is_given_fresh(base, n->out());
    if (fresh && uses[base->id] == 1) continue;
    graph::Type type = base->type;
    type.strides = n->out()->type.strides;
    const Syms sizes = type.sizes;
    base = g.make_typed(Op::reshape, {base}, {{"sizes", sizes}}, {std::move(type)}, n->loc, n.get())->out();
  }
  g.renumber();
}

const Value* view_base(const Value* v) {
  while (is_view(v)) v = v->def->operands[0];
  return v;
}

std::optional<StridedView> over_base(const Value* v, const Syms& base) {
  if (!is_view(v)) return StridedView{base, 0};
  auto operand = over_base(v->def->operands[0], base);
  if (!operand) return std::nullopt;
  return view_strides(*v->def, *operand);
}

namespace {
/// As over_base, from a value in between that lies so.
std::optional<StridedView> over_value(const Value* v, const Value* from, const Syms& strides) {
  if (v == from) return StridedView{strides, 0};
  auto operand = over_value(v->def->operands[0], from, strides);
  if (!operand) return std::nullopt;
  return view_strides(*v->def, *operand);
}
}  // namespace

std::optional<StridedView> part_of_result(const graph::Output& output, const std::vector<Syms>& strides) {
  const Value *v = output.value, *base = view_base(v);
  if (!output.may_be_part || v == base || !base->def || !is_call(base->def)) return std::nullopt;
  if (!is_most_of(estimate(v->type.numel()), estimate(base->type.numel()))) return std::nullopt;
  std::optional<StridedView> view = over_base(v, strides[base->id]);
  if (!view || !view->offset.is_const(0)) return std::nullopt;
  // Calls that read it later are quick at the order that they were recorded with.
  Sym inner = 1;
  for (int d = v->type.rank(); d-- > 0;) {
    if (v->type.sizes[d].is_const(1)) continue;
    if (estimate(view->strides[d]) < estimate(inner)) return std::nullopt;
    inner = view->strides[d] * v->type.sizes[d];
  }
  return view;
}

std::optional<ShownOver> shown_over(const Value* v, const std::vector<Syms>& strides) {
  auto over = [&](const Value* from) -> std::optional<ShownOver> {
    const Syms& there = strides[from->id];
    if (there.empty() && from->type.rank() > 0) return std::nullopt;
    auto view = over_value(v, from, there);
    return view ? std::optional(ShownOver{from, std::move(*view)}) : std::nullopt;
  };
  const Value* root = view_base(v);
  std::optional<ShownOver> found = over(root);
  for (const Value* from = v; !found && from != root; from = from->def->operands[0]) found = over(from);
  return found;
}

bool is_dense(const graph::Type& type) {
  std::vector<int> order(type.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int i) { return type.sizes[i].is_const(1); });
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return estimate(type.strides[a]) > estimate(type.strides[b]); });
  Sym run = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (type.strides[order[i]] != run) return false;
    run *= type.sizes[order[i]];
  }
  return true;
}

Roles assign_roles(const Graph& graph, const PlanOptions& options) { return Assigner(graph, options).run(); }

}  // namespace bolt::loops

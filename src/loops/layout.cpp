// loops/layout.cpp
#include "loops/layout.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_map>

#include "graph/device_facts.h"
#include "loops/library_layout.h"
#include "loops/roles.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Type;
using graph::Value;

using Order = std::vector<int>;  // of dimensions in memory, outermost first

Order row_major(int rank) {
  Order order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}
/// [N, C, spatial...] in the order N, spatial, C.
Order channels_last(int rank) {
  Order order = row_major(rank);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}
/// [..., heads, queries, columns] in the order queries, heads, columns.
Order heads_inside(int rank) {
  Order order = row_major(rank);
  std::swap(order[static_cast<size_t>(rank) - 2], order[static_cast<size_t>(rank) - 3]);
  return order;
}

/// The order in which a reshape shows what lies in `order`; nothing: it puts dimensions together that do not
/// lie one within the other.
std::optional<Order> across_reshape(const Syms& from, const Syms& to, const Order& order) {
  const std::vector<ReshapeGroup> groups = reshape_groups(from, to);
  std::vector<const ReshapeGroup*> group_of(from.size());  // of what is larger than 1
  Order shown, lies;
  auto show = [&](const ReshapeGroup& g) {
    for (int d = g.to_begin; d < g.to_end; ++d) shown.push_back(d);
  };
  for (const ReshapeGroup& g : groups) {
    bool counts = false;
    for (int d = g.from_begin; d < g.from_end; ++d)
      if (!from[d].is_const(1)) group_of[d] = &g, counts = true;
    if (!counts) show(g);
  }
  for (const int d : order)
    if (group_of[d]) lies.push_back(d);
  for (size_t i = 0; i < lies.size();) {
    const ReshapeGroup& g = *group_of[lies[i]];
    for (int d = g.from_begin; d < g.from_end; ++d)
      if (group_of[d] && (i == lies.size() || lies[i++] != d)) return std::nullopt;
    show(g);
  }
  return shown;
}

/// Weights of more elements are not kept in a second order beside their own.
constexpr int64_t kMostKeptTwice = int64_t{32} << 20;

class Chooser {
 public:
  Chooser(Graph& g, const PlanOptions& options, const std::vector<int>& free_outputs)
      : g_(g), options_(options), free_outputs_(free_outputs) {
    for (const auto& in : g.inputs) count(in.value.get());
    for (const auto& n : g.nodes)
      for (const auto& v : n->outputs) count(v.get());
    users_.resize(values_);
    fixed_.resize(values_);
    order_.resize(values_);
  }

  void run() {
    constant_ = find_constants(g_, options_);
    find_users();
    fix_what_is_seen();
    library_convolutions();
    generated_calls();
    library_products();
    as_results_lie();
    weights_follow();
    if (any_copied_) g_.renumber();
  }

 private:
  void count(const Value* v) { values_ = std::max(values_, static_cast<size_t>(v->id) + 1); }

  void find_users() {
    for (const auto& n : g_.nodes)
      for (const Value* o : n->operands) users_[o->id].push_back(n.get());
  }

  // ---- who wishes, in this order

  void generated_calls() {
    const std::vector<char>& constant = constant_;
    for (const auto& n : g_.nodes)
      if (n->op == Op::conv && is_generated(*n, constant, channels_last(n->out()->type.rank())))
        start(*n, channels_last(n->out()->type.rank()));
    for (const auto& n : g_.nodes)
      if (n->op == Op::linear && n->operands[0]->type.rank() > 0 &&
          is_generated(*n, constant, row_major(n->operands[0]->type.rank())))
        start(*n, row_major(n->out()->type.rank()));
    for (const auto& n : g_.nodes)
      if (n->op == Op::sdpa && is_generated(*n, constant, {}) && joins_heads(*n)) {
        wish(n->out(), heads_inside(n->out()->type.rank()));
        spread_all();
      }
  }

  /// A library multiplies rows. Of what lies otherwise, as results of eager do where one of their operands
  /// was turned round long before, it makes a copy for each product, and adds the bias in a pass of its own.
  void library_products() {
    for (const auto& n : g_.nodes) {
      if (n->op != Op::linear || view_base(n->operands[0]) != n->operands[0]) continue;
      wish(n->operands[0], row_major(n->operands[0]->type.rank()));
      spread_all();
    }
  }

  /// Images whose channels are innermost, in what is given or returned, lie so on the way as well. What was
  /// recorded in any other order than that of its dimensions lies as eager's does already.
  void as_results_lie() {
    spreads_to_rows_only_ = true;
    auto spread_from = [&](Value* v) {
      const Type& t = v->type;
      if (t.rank() < 4 || !is_dense(t) || t.is_contiguous()) return;
      if (t.strides != graph::strides_in_order(t.sizes, channels_last(t.rank()))) return;
      if (!order_[v->id].empty()) return;
      order_[v->id] = channels_last(t.rank());
      spread(v);
      spread_all();
    };
    for (const graph::Output& out : g_.outputs) spread_from(out.value);
    for (const auto& in : g_.inputs) spread_from(in.value.get());
  }

  // ---- convolutions of a library

  void library_convolutions() {
    for (const auto& n : g_.nodes) {
      if (!likes_channels_last(*n)) continue;
      for (Value*& operand : n->operands)
        if (operand->type.rank() >= 4) give(*n, operand, channels_last(operand->type.rank()));
      for (const auto& v : n->outputs)
        if (v->type.rank() >= 4) wish(v.get(), channels_last(v->type.rank()));
      spread_all();
    }
  }
  /// `operand` in this order, copied if it has to stay as it is.
  void give(Node& n, Value*& operand, const Order& order) {
    const Value* base = view_base(operand);
    if (!fixed_[base->id] && !fixed_[operand->id] &&
        (order_[operand->id].empty() || order_[operand->id] == order))
      return wish_to_be_shown(operand, order);
    if (lies_in(operand, order)) return;
    operand = copied(n, operand, order);
  }
  /// What the value is a view of, its dimensions permuted, parted or put together, lies so that the view
  /// shows this order.
  void wish_to_be_shown(Value* v, Order order) {
    wish(v, order);
    while (v->def) {
      Value* base = v->def->operands.empty() ? nullptr : v->def->operands[0];
      if (v->def->op == Op::permute) {
        const std::vector<int> from = int_list(*v->def, "dims");
        for (int& d : order) d = from[d];
      } else if (v->def->op == Op::reshape) {
        const auto before = across_reshape(v->type.sizes, base->type.sizes, order);
        if (!before) return;
        order = *before;
      } else {
        return;
      }
      wish(v = base, order);
    }
  }
  static bool lies_in(const Value* v, const Order& order) {
    const std::optional<StridedView> shown = over_base(v, view_base(v)->type.strides);
    const Syms wanted = graph::strides_in_order(v->type.sizes, order);
    for (size_t d = 0; shown && d < wanted.size(); ++d)
      if (!v->type.sizes[d].is_const(1) && shown->strides[d] != wanted[d]) return false;
    return shown.has_value();
  }
  Value* copied(Node& before, Value* v, const Order& order) {
    Value*& copy = copies_[v];
    if (copy) return copy;
    Node* made = g_.make(Op::cast, {v}, {{"dtype", v->type.dtype}}, before.loc, &before);
    copy = made->out();
    copy->id = static_cast<int>(values_++);
    any_copied_ = true;
    users_.push_back({&before});
    fixed_.push_back(0);
    order_.emplace_back();
    constant_.push_back(constant_[v->id]);
    users_[v->id].push_back(made);
    wish(copy, order);
    return copy;
  }

  /// Is it a convolution whose image is given a layout here? A generator's code reads any, and some libraries
  /// want their images channels-last anyway.
  bool has_own_layout(const Node& n) const {
    return n.op == Op::conv && !likes_channels_last(n) &&
           !is_generated(n, constant_, channels_last(n.out()->type.rank()));
  }
  /// ATen's convolutions turn their weights round as their images lie, in each call: of weights that stay it
  /// is done once.
  void weights_follow() {
    copies_.clear();
    for (const auto& n : g_.nodes) {
      if (n->op != Op::conv || !constant_[n->operands[1]->id] || likes_channels_last(*n)) continue;
      const Order order = channels_last(n->out()->type.rank());
      if (order_[n->operands[0]->id] != order || !has_own_layout(*n) || lies_in(n->operands[1], order))
        continue;
      n->operands[1] = copied(*n, n->operands[1], order);
    }
  }

  // ---- what stays as it was recorded

  void fix_what_is_seen() {
    for (const auto& in : g_.inputs) fix(in.value.get());
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const bool any_order =
          std::find(free_outputs_.begin(), free_outputs_.end(), static_cast<int>(i)) != free_outputs_.end();
      if (!any_order || is_shown(g_.outputs[i].value)) fix(g_.outputs[i].value);
    }
    for (const auto& n : g_.nodes) {
      if (kind_of(n.get()) == OpKind::Extern && !follows_images(*n) && !likes_channels_last(*n))
        for (const Value* o : n->operands) fix(o);
      if (has_own_layout(*n) && keeps_its_layout(*n)) {
        fix(n->operands[0]);
        fix(n->out());
      }
      if (kind_of(n.get()) == OpKind::Reduce && graph::facts_of(n->out()->type.device).sums_in_memory_order &&
          mixes_channels_and_pixels(*n))
        fix(n->operands[0]);
    }
  }
  /// A view of memory; others have memory of their own. What a formula gives lies in none until it is stored,
  /// as the view shows it.
  static bool is_shown(const Value* v) {
    const Value* base = view_base(v);
    if (v == base || (base->def && kind_of(base->def) == OpKind::Pointwise)) return false;
    return over_base(v, base->type.strides).has_value();
  }
  void fix(const Value* v) { fixed_[v->id] = fixed_[view_base(v)->id] = 1; }

  /// Does a convolution stay as it lies? It may be slow otherwise, its weights may be too large for a second
  /// order, or its result would be turned back.
  bool keeps_its_layout(const Node& conv) const {
    if (!graph::facts_of(conv.out()->type.device).convolves_in_any_order) return true;
    const Value* weights = conv.operands[1];
    if (fixed_[view_base(conv.operands[0])->id] || fixed_[conv.operands[0]->id]) return true;
    return constant_[weights->id] && estimate(weights->type.numel()) > kMostKeptTwice;
  }

  /// Does it add up more than the channels of one pixel, or the pixels of one channel?
  static bool mixes_channels_and_pixels(const Node& reduce) {
    const Type& x = view_base(reduce.operands[0])->type;
    if (x.rank() < 3) return false;
    if (view_base(reduce.operands[0]) == reduce.operands[0]) {
      const std::vector<int64_t> dims = reduce.ints("dims");
      return !dims.empty() && dims.back() > 1 && std::find(dims.begin(), dims.end(), 1) != dims.end();
    }
    const int64_t channels = estimate(x.sizes[1]);
    const int64_t pixels = estimate(x.numel()) / std::max<int64_t>(1, estimate(x.sizes[0]) * channels);
    const int64_t results = std::max<int64_t>(1, estimate(reduce.out()->type.numel()));
    return estimate(reduce.operands[0]->type.numel()) / results > std::max(channels, pixels);
  }

  /// Would the code generator compute it if its activations lay in this order?
  bool is_generated(const Node& n, const std::vector<char>& constant, const Order& order) const {
    if (!options_.generates) return false;
    PlannedContraction call{n, {}, {}};
    for (const Value* v : n.operands) {
      call.operands.push_back(v->type);
      call.constant.push_back(constant[v->id]);
    }
    if (!order.empty()) call.operands[0].strides = graph::strides_in_order(call.operands[0].sizes, order);
    return options_.generates(call).has_value();
  }
  void start(const Node& contraction, const Order& order) {
    wish(contraction.operands[0], order);
    wish(contraction.out(), order);
    spread_all();
  }
  /// Is the result of an attention, [..., heads, queries, columns], turned to have a query's heads together?
  bool joins_heads(const Node& attention) const {
    const int rank = attention.out()->type.rank();
    if (rank < 4) return false;
    const Order wanted = heads_inside(rank);
    const auto& users = users_[attention.out()->id];
    return std::any_of(users.begin(), users.end(), [&](const Node* user) {
      return user->op == Op::permute && int_list(*user, "dims") == wanted;
    });
  }
  void spread_all() {
    while (!queue_.empty()) {
      Value* v = queue_.back();
      queue_.pop_back();
      spread(v);
    }
  }

  // ---- where the wish goes

  void wish(Value* v, const Order& order) {
    if (!order_[v->id].empty() || fixed_[v->id] || v->type.rank() < 2) return;
    if (spreads_to_rows_only_ && is_dense(v->type) && !v->type.is_contiguous()) return;
    order_[v->id] = order;
    queue_.push_back(v);
    if (is_dense(v->type)) v->type.strides = graph::strides_in_order(v->type.sizes, order);
  }

  void spread(Value* v) {
    if (v->def && keeps_dimensions(*v->def)) along(*v->def, v);
    if (v->def && v->def->op == Op::reshape) wish_to_be_shown(v, order_[v->id]);
    for (Node* user : users_[v->id]) {
      if (keeps_dimensions(*user)) along(*user, v);
      if (kind_of(user) == OpKind::View) behind(*user);
    }
  }

  /// The order in which a view shows its base's memory.
  void behind(const Node& view) {
    Type shown = view.out()->type;
    const Value* base = view_base(view.out());
    std::optional<StridedView> strided = over_base(view.out(), base->type.strides);
    if (view.op == Op::reshape && !strided) {
      // It is not shown but copied, at best without turning anything round.
      const Value* from = view.operands[0];
      if (const auto order = across_reshape(from->type.sizes, shown.sizes, order_[from->id]))
        wish(view.out(), *order);
      return;
    }
    if (order_[base->id].empty() || !strided) return;
    shown.strides = strided->strides;
    if (!is_dense(shown)) return;
    // The stride of a dimension of size 1 says nothing: outermost.
    auto distance = [&](int d) {
      return shown.sizes[d].is_const(1) ? INT64_MAX : estimate(shown.strides[d]);
    };
    Order order = row_major(shown.rank());
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return distance(a) > distance(b); });
    wish(view.out(), order);
  }

  /// Does it work in any order of memory, and leave each dimension where it is?
  static bool keeps_dimensions(const Node& n) {
    switch (n.op) {
      case Op::cat:
      case Op::pad:
      case Op::slice:
      case Op::flip:
      case Op::keep:
      case Op::slice_scatter:
      case Op::upsample_nearest:
      case Op::index_select:
      case Op::avg_pool:
      case Op::max_pool:
      case Op::adaptive_avg_pool:
      case Op::batch_norm:
      case Op::conv: return true;
      default: return kind_of(&n) == OpKind::Pointwise || follows_images(n);
    }
  }

  /// From one of the node's values to the others that have the same dimensions. What a pointwise operation
  /// broadcasts has an order of its own.
  void along(const Node& n, const Value* from) {
    const Order order = order_[from->id];
    auto alike = [&](const Value* v) {
      return kind_of(&n) == OpKind::Pointwise ? v->type.sizes == from->type.sizes
                                              : v->type.rank() == from->type.rank();
    };
    if (!alike(n.out())) return;
    for (const auto& v : n.outputs) wish(v.get(), order);
    for (size_t i = 0; i < n.operands.size(); ++i) {
      if (i > 0 && n.op == Op::batch_norm) break;
      if (n.op == Op::conv && (i == 1 || i == 2)) continue;  // weights and bias
      if (alike(n.operands[i])) wish(n.operands[i], order);
    }
  }

  Graph& g_;
  const PlanOptions& options_;
  const std::vector<int>& free_outputs_;
  size_t values_ = 0;
  std::vector<char> constant_;  // by value id
  std::unordered_map<const Value*, Value*> copies_;
  bool any_copied_ = false, spreads_to_rows_only_ = false;
  std::vector<std::vector<Node*>> users_;  // by value id
  std::vector<char> fixed_;                // by value id
  std::vector<Order> order_;               // by value id; empty: no wish
  std::vector<Value*> queue_;
};

}  // namespace

void choose_layouts(Graph& graph, const PlanOptions& options, const std::vector<int>& free_outputs) {
  Chooser(graph, options, free_outputs).run();
}

}  // namespace bolt::loops

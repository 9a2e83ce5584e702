// loops/layout.cpp
#include "loops/layout.h"

#include <algorithm>
#include <numeric>

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

class Chooser {
 public:
  Chooser(Graph& g, const PlanOptions& options) : g_(g), options_(options) {
    for (const auto& in : g.inputs) count(in.value.get());
    for (const auto& n : g.nodes)
      for (const auto& v : n->outputs) count(v.get());
    users_.resize(values_);
    fixed_.resize(values_);
    order_.resize(values_);
  }

  void run() {
    find_users();
    fix_what_is_seen();
    const std::vector<char> constant = find_constants(g_, options_);
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

 private:
  void count(const Value* v) { values_ = std::max(values_, static_cast<size_t>(v->id) + 1); }

  void find_users() {
    for (const auto& n : g_.nodes)
      for (const Value* o : n->operands) users_[o->id].push_back(n.get());
  }

  // ---- what stays as it was recorded

  void fix_what_is_seen() {
    for (const auto& in : g_.inputs) fix(in.value.get());
    for (const graph::Output& o : g_.outputs) fix(o.value);
    for (const auto& n : g_.nodes) {
      if (kind_of(n.get()) == OpKind::Extern)
        for (const Value* o : n->operands) fix(o);
      if (kind_of(n.get()) == OpKind::Reduce && mixes_channels_and_pixels(*n)) fix(n->operands[0]);
    }
  }
  void fix(const Value* v) { fixed_[v->id] = fixed_[view_base(v)->id] = 1; }

  /// Does it add up more than the channels of one pixel, or the pixels of one channel?
  static bool mixes_channels_and_pixels(const Node& reduce) {
    const Type& x = view_base(reduce.operands[0])->type;
    if (x.rank() < 3) return false;
    const int64_t channels = estimate(x.sizes[1]);
    const int64_t pixels = estimate(x.numel()) / std::max<int64_t>(1, estimate(x.sizes[0]) * channels);
    const int64_t results = std::max<int64_t>(1, estimate(reduce.out()->type.numel()));
    return estimate(reduce.operands[0]->type.numel()) / results > std::max(channels, pixels);
  }

  // ---- who wishes

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
    order_[v->id] = order;
    queue_.push_back(v);
    if (is_dense(v->type)) v->type.strides = graph::strides_in_order(v->type.sizes, order);
  }

  void spread(Value* v) {
    if (v->def && keeps_dimensions(*v->def)) along(*v->def, v);
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
      case Op::slice_scatter:
      case Op::upsample_nearest:
      case Op::index_select:
      case Op::avg_pool:
      case Op::max_pool:
      case Op::adaptive_avg_pool:
      case Op::batch_norm:
      case Op::conv: return true;
      default: return kind_of(&n) == OpKind::Pointwise;
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
    wish(n.out(), order);
    for (size_t i = 0; i < n.operands.size(); ++i) {
      if (i > 0 && (n.op == Op::conv || n.op == Op::batch_norm)) break;
      if (alike(n.operands[i])) wish(n.operands[i], order);
    }
  }

  Graph& g_;
  const PlanOptions& options_;
  size_t values_ = 0;
  std::vector<std::vector<Node*>> users_;  // by value id
  std::vector<char> fixed_;                // by value id
  std::vector<Order> order_;               // by value id; empty: no wish
  std::vector<Value*> queue_;
};

}  // namespace

void choose_layouts(Graph& graph, const PlanOptions& options) { Chooser(graph, options).run(); }

}  // namespace bolt::loops

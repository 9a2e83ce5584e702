// lower/round_once.cpp
#include "lower/round_once.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "graph/device_facts.h"

namespace bolt::lower {
namespace {

using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;

class Row {
 public:
  Row(graph::Graph& g, const Node* last_before, std::vector<Value*>& values)
      : g_(g), last_before_(last_before), values_(values) {
    for (auto at = begin(); at != g.nodes.end(); ++at) {
      nodes_.push_back(at->get());
      mine_.insert(at->get());
    }
  }

  void run() {
    find_numbers_given();
    if (!rounds_between()) return;
    for (Node* n : nodes_) {
      at_ = n;
      take(n);
    }
    at_ = nullptr;
    for (Value*& v : values_)
      if (v && wide_.contains(v)) v = narrow(v);
    erase_unused();
  }

 private:
  std::list<std::unique_ptr<Node>>::iterator begin() const {
    return last_before_ ? std::next(last_before_->position) : g_.nodes.begin();
  }
  static OpKind kind(const Node* n) { return graph::op_info(n->op).kind; }
  static bool is_half_value(const Value* v) { return is_half(v->type.dtype); }
  bool is_mine(const Value* v) const { return v->def && mine_.contains(v->def); }

  /// Does it compute a half?
  bool computes(const Node* n) const {
    if (n->outputs.size() != 1 || !is_half_value(n->out())) return false;
    if (n->op == Op::cast) return is_number(n);
    const OpKind k = kind(n);
    return k == OpKind::Pointwise || k == OpKind::Reduce || k == OpKind::Composite || k == OpKind::Scan ||
           given_.contains(n);
  }
  /// A number that differs between calls, as an operand.
  bool is_number(const Node* cast) const {
    const Value* from = cast->operands[0];
    return from->type.rank() == 0 && is_mine(from) &&
           (kind(from->def) == OpKind::Create || from->def->op == Op::from_bits);
  }

  /// Numbers that are results, shown as they are or spread out.
  void find_numbers_given() {
    for (const Value* v : values_) {
      while (v && is_mine(v) && kind(v->def) == OpKind::View) v = v->def->operands[0];
      if (!v || !is_mine(v) || !is_half_value(v) || kind(v->def) != OpKind::Create) continue;
      const auto value = v->def->attrs.find("value");
      const double* number = value == v->def->attrs.end() ? nullptr : std::get_if<double>(&value->second);
      if (!number || (*number != 0 && *number != 1)) given_.insert(v->def);
    }
  }

  bool rounds_between() const {
    return !given_.empty() || std::any_of(nodes_.begin(), nodes_.end(), [&](const Node* n) {
      return std::any_of(n->operands.begin(), n->operands.end(),
                         [&](const Value* v) { return is_mine(v) && computes(v->def); });
    });
  }

  void take(Node* n) {
    const bool reads = std::any_of(n->operands.begin(), n->operands.end(),
                                   [&](const Value* v) { return wide_.contains(v); });
    const OpKind k = kind(n);
    const bool follows = k == OpKind::Pointwise || k == OpKind::Reduce || k == OpKind::Scan ||
                         k == OpKind::Composite || k == OpKind::View || k == OpKind::Index;
    if (computes(n) || (reads && follows)) return widen(n);
    if (!reads) return;
    for (Value*& v : n->operands)
      if (wide_.contains(v)) v = narrow(v);
  }

  /// Makes the node one of float32. A comparison of operands that became float32 gives what it gave.
  void widen(Node* n) {
    std::vector<Value*> operands;
    for (Value* v : n->operands) operands.push_back(is_half_value(v) ? wide(v) : v);
    graph::Attrs attrs = n->attrs;
    if (is_half_value(n->out()))
      if (const auto dtype = attrs.find("dtype"); dtype != attrs.end()) dtype->second = DType::F32;
    Value* made = nullptr;
    if (n->op == Op::cast && operands[0]->type.dtype == std::get<DType>(attrs.find("dtype")->second))
      made = operands[0];
    else
      made = g_.make(n->op, std::move(operands), std::move(attrs), n->loc, n)->out();
    made->type.device = n->out()->type.device;
    wide_[n->out()] = made;
  }

  Value* wide(Value* v) {
    if (const auto known = wide_.find(v); known != wide_.end()) return known->second;
    if (!is_mine(v) || kind(v->def) != OpKind::Create) return wide_[v] = cast(v, DType::F32);
    widen(v->def);
    return wide_[v];
  }
  Value* narrow(Value* v) {
    Value* made = wide_[v];
    if (made->type.dtype == v->type.dtype) return made;
    Value* rounded = cast(made, v->type.dtype);
    rounded->type.strides = v->type.strides;
    return rounded;
  }
  Value* cast(Value* v, DType t) {
    return g_.make(Op::cast, {v}, {{"dtype", t}}, v->def ? v->def->loc : graph::Loc(), at_)->out();
  }

  void erase_unused() {
    std::unordered_map<const Value*, int> uses;
    for (auto at = begin(); at != g_.nodes.end(); ++at)
      for (const Value* v : (*at)->operands) ++uses[v];
    for (const Value* v : values_) ++uses[v];
    for (auto n = nodes_.rbegin(); n != nodes_.rend(); ++n) {
      const auto& outputs = (*n)->outputs;
      if (std::any_of(outputs.begin(), outputs.end(), [&](const auto& v) { return uses[v.get()] > 0; }))
        continue;
      for (const Value* v : (*n)->operands) --uses[v];
      g_.erase(*n);
    }
  }

  graph::Graph& g_;
  const Node* last_before_;
  std::vector<Value*>& values_;
  std::vector<Node*> nodes_;  ///< that the row made
  std::unordered_set<const Node*> mine_, given_;
  std::unordered_map<const Value*, Value*> wide_;
  Node* at_ = nullptr;  ///< before which casts are made; null: at the end
};

enum class On : uint8_t { everywhere, processor };
struct Rounding {
  std::string_view begin;  ///< of the operator's name, behind "aten::"
  On on = On::everywhere;
  bool of_bf16 = true;
};
/// Found by comparing the rows with ATen's kernels, over the samples that torch has of its operators.
constexpr Rounding kRoundings[] = {
    {"mse_loss"},
    {"l1_loss"},
    {"smooth_l1_loss"},
    {"huber_loss"},
    {"binary_cross_entropy"},
    {"soft_margin_loss"},
    {"kl_div"},
    {"nll_loss"},
    {"cross_entropy_loss"},
    {"linear_cross_entropy"},
    {"xlogy"},
    {"prod"},
    {"logsumexp"},
    {"pairwise_distance"},
    {"index_reduce"},
    {"logit", On::processor},
    {"sigmoid_backward", On::processor, false},
    {"glu_backward", On::processor},
    {"native_batch_norm", On::processor},
    {"_native_batch_norm", On::processor},
    {"upsample_linear1d", On::processor},
    {"upsample_bicubic", On::processor},
    {"upsample_trilinear", On::processor},
};

}  // namespace

bool rounds_on_its_way(const Call& c) {
  std::string_view name = c.name();
  name.remove_prefix(std::min(name.size(), name.find("::") + 2));
  const auto row =
      std::ranges::find_if(kRoundings, [&](const Rounding& r) { return name.starts_with(r.begin); });
  const bool truncates = name == "div" && c.has("rounding_mode") && c.text("rounding_mode") == "trunc";
  if (row == std::end(kRoundings) && !truncates) return false;
  const std::vector<Value*> tensors = c.all_tensors();
  if (tensors.empty()) return false;
  const DType t = tensors[0]->type.dtype;
  if (truncates) return is_half(t);
  const bool here = row->on == On::everywhere || graph::is_processor(c.result_device());
  return here && is_half(t) && (row->of_bf16 || t != DType::BF16);
}

void round_once(graph::Graph& g, const Node* last_before, std::vector<Value*>& values) {
  Row(g, last_before, values).run();
}

}  // namespace bolt::lower

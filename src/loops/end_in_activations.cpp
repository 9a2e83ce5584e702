// loops/end_in_activations.cpp
#include "loops/end_in_activations.h"

#include <ranges>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "loops/roles.h"

namespace bolt::loops {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::Value;

namespace {

class Ending {
 public:
  Ending(Graph& g, const PlanOptions& options) : g_(g), options_(options), uses_(g.use_counts()) {
    for (const auto& node : g.nodes)
      if (is_call(node.get())) read_by_calls_.insert(node->operands.begin(), node->operands.end());
  }

  bool run() {
    for (const auto& node : g_.nodes) {
      if (options_.rounds_as_eager && !node->outputs.empty() && is_half(node->out()->type.dtype)) continue;
      if (node->op == Op::gelu && node->attr<std::string>("approximate") == "tanh") {
        product(*node, "gelu_tanh");
      } else if (node->op == Op::relu && !product(*node, "relu")) {
        Terms terms;
        add_terms(node->operands[0], node->out()->type, terms);
        end_in(*node, terms);
      }
    }
    // Of a sum of sums the whole one first.
    for (const auto& node : std::views::reverse(g_.nodes))
      if (node->op == Op::add && !inside_.contains(node.get())) sum(*node);
    g_.replace_uses(with_);
    for (Node* node : gone_) g_.erase(node);
    for (const Call& call : convolutions_) {
      Node* node = call.end;
      Value* made = convolution(call);
      with_[node->out()] = made;
      g_.replace_uses(node->out(), made);
    }
    if (!convolutions_.empty()) graph::dce(g_);
    return !gone_.empty() || !convolutions_.empty();
  }

 private:
  /// A sum, or the relu of one. `conv` is one of its terms.
  struct Call {
    Node* end = nullptr;
    Value* conv = nullptr;
    std::vector<Value*> biases = {};  ///< of each channel
    Value* other = nullptr;           ///< null: there is none
  };

  bool is_read_once(const Value* v) const { return uses_[v->id] == 1; }
  bool ends_in(const Node& call, Op activation) const {
    return !call.has_attr("activation") && is_read_once(call.out()) && options_.ends_in(call, activation);
  }

  /// False: the activation stays.
  bool product(Node& activation, const char* name) {
    Node* product = activation.operands[0]->def;
    if (product && product->op == Op::reshape && is_read_once(product->out()))
      product = product->operands[0]->def;
    if (!product || product->op != Op::linear || !ends_in(*product, activation.op)) return false;
    product->attrs["activation"] = std::string(name);
    with_[activation.out()] = activation.operands[0];
    gone_.push_back(&activation);
    return true;
  }

  /// Of what kernels of our own alone read, they add up the terms on their way.
  void sum(Node& node) {
    if (options_.rounds_as_eager && is_half(node.out()->type.dtype)) return;
    if (!read_by_calls_.contains(node.out())) return;
    Terms terms;
    for (Value* term : node.operands) add_terms(term, node.out()->type, terms);
    end_in(node, terms);
  }

  /// What a sum adds up, as far as nothing else reads the sums in between.
  struct Terms {
    std::vector<Value*> values;
    std::vector<const Node*> sums;
  };
  void add_terms(Value* v, const graph::Type& sum, Terms& terms) const {
    if (!is_op(v, Op::add) || !is_read_once(v) || v->type.dtype != sum.dtype || v->type.sizes != sum.sizes)
      return terms.values.push_back(v);
    terms.sums.push_back(v->def);
    for (Value* term : v->def->operands) add_terms(term, sum, terms);
  }

  void end_in(Node& node, const Terms& terms) {
    Call call{&node};
    for (Value* v : terms.values) {
      if (v->type.sizes == node.out()->type.sizes) {
        const bool first = !call.conv && is_op(v, Op::conv) && v->def->operands.size() == 2 &&
                           v->type.dtype == node.out()->type.dtype && ends_in(*v->def, node.op);
        Value*& place = first ? call.conv : call.other;
        if (place) return;
        place = v;
      } else if (Value* bias = of_channels(v, node.out()->type)) {
        call.biases.push_back(bias);
      } else {
        return;
      }
    }
    // The library adds a bias in any case, of zeros where there is none. A bias alone costs a kernel behind
    // the call nothing.
    if (!call.conv || call.biases.empty() || (node.op == Op::add && !call.other)) return;
    inside_.insert(terms.sums.begin(), terms.sums.end());
    convolutions_.push_back(std::move(call));
  }

  /// [C], where this is seen as one number for each channel of an image.
  static Value* of_channels(const Value* v, const graph::Type& image) {
    if (!is_op(v, Op::reshape) || v->type.dtype != image.dtype) return nullptr;
    Value* from = v->def->operands[0];
    if (from->type.rank() != 1 || from->type.sizes[0] != image.sizes[1]) return nullptr;
    const auto pixels = static_cast<size_t>(image.rank() - 2), rank = v->type.sizes.size();
    if (rank < pixels + 1 || v->type.sizes[rank - pixels - 1] != image.sizes[1]) return nullptr;
    return from;
  }

  /// What has taken the value's place meanwhile.
  Value* now(Value* v) const {
    const auto made = with_.find(v);
    return made == with_.end() ? v : made->second;
  }

  Value* convolution(const Call& call) {
    const graph::Maker m(g_, call.end);
    Value* bias = now(call.biases[0]);
    for (size_t i = 1; i < call.biases.size(); ++i) bias = m.add(bias, now(call.biases[i]));
    const Node& plain = *call.conv->def;
    std::vector<Value*> operands = {plain.operands[0], plain.operands[1], bias};
    if (call.other) operands.push_back(now(call.other));
    graph::Attrs attrs = plain.attrs;
    if (call.end->op == Op::relu) attrs["activation"] = std::string("relu");
    Value* made = m.make(Op::conv, std::move(operands), std::move(attrs));
    made->type.strides = call.end->out()->type.strides;
    return made;
  }

  Graph& g_;
  const PlanOptions& options_;
  const std::vector<int> uses_;  ///< by value id, before anything is made
  std::unordered_set<const Value*> read_by_calls_;
  std::unordered_map<Value*, Value*> with_;
  std::vector<Node*> gone_;
  std::vector<Call> convolutions_;
  std::unordered_set<const Node*> inside_;  ///< sums whose terms are those of a call
};

}  // namespace

bool end_in_activations(Graph& g, const PlanOptions& options) {
  return options.ends_in && Ending(g, options).run();
}

}  // namespace bolt::loops

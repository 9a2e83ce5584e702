// loops/end_in_activations.cpp
#include "loops/end_in_activations.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::loops {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::Value;

namespace {

class Ending {
 public:
  Ending(Graph& g, const PlanOptions& options) : g_(g), options_(options), uses_(g.use_counts()) {}

  bool run() {
    for (const auto& node : g_.nodes) {
      if (options_.rounds_as_eager && !node->outputs.empty() && is_half(node->out()->type.dtype)) continue;
      if (node->op == Op::gelu) gelu(*node);
      if (node->op == Op::relu) relu(*node);
    }
    g_.replace_uses(with_);
    for (Node* node : gone_) g_.erase(node);
    for (const auto& [node, call] : convolutions_) {
      Value* made = convolution(node, call);
      with_[node->out()] = made;
      g_.replace_uses(node->out(), made);
    }
    if (!convolutions_.empty()) graph::dce(g_);
    return !gone_.empty() || !convolutions_.empty();
  }

 private:
  /// A sum that ends in a relu. `conv` is one of its terms.
  struct Call {
    Value* conv = nullptr;
    std::vector<Value*> biases;  ///< of each channel
    Value* other = nullptr;      ///< null: there is none
  };

  bool is_read_once(const Value* v) const { return uses_[v->id] == 1; }
  bool ends_in(const Node& call, Op activation) const {
    return !call.has_attr("activation") && is_read_once(call.out()) && options_.ends_in(call, activation);
  }

  void gelu(Node& node) {
    if (node.attr<std::string>("approximate") != "tanh") return;
    Node* product = node.operands[0]->def;
    if (product && product->op == Op::reshape && is_read_once(product->out()))
      product = product->operands[0]->def;
    if (!product || product->op != Op::linear || product->operands.size() != 3 ||
        !ends_in(*product, Op::gelu))
      return;
    product->attrs["activation"] = std::string("gelu_tanh");
    with_[node.out()] = node.operands[0];
    gone_.push_back(&node);
  }

  void relu(Node& node) {
    std::vector<Value*> terms;
    add_terms(node.operands[0], node.out()->type, terms);
    Call call;
    for (Value* v : terms) {
      if (v->type.sizes == node.out()->type.sizes) {
        const bool first = !call.conv && is_op(v, Op::conv) && v->def->operands.size() == 2 &&
                           v->type.dtype == node.out()->type.dtype && ends_in(*v->def, Op::relu);
        Value*& place = first ? call.conv : call.other;
        if (place) return;
        place = v;
      } else if (Value* bias = of_channels(v, node.out()->type)) {
        call.biases.push_back(bias);
      } else {
        return;
      }
    }
    // The library adds a bias in any case, of zeros where there is none.
    if (call.conv && !call.biases.empty()) convolutions_.emplace_back(&node, std::move(call));
  }

  /// What a sum adds up, as far as nothing else reads the sums in between.
  void add_terms(Value* v, const graph::Type& sum, std::vector<Value*>& terms) const {
    if (!is_op(v, Op::add) || !is_read_once(v) || v->type.dtype != sum.dtype || v->type.sizes != sum.sizes)
      return terms.push_back(v);
    for (Value* term : v->def->operands) add_terms(term, sum, terms);
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

  Value* convolution(Node* relu, const Call& call) {
    const graph::Maker m(g_, relu);
    Value* bias = now(call.biases[0]);
    for (size_t i = 1; i < call.biases.size(); ++i) bias = m.add(bias, now(call.biases[i]));
    const Node& plain = *call.conv->def;
    std::vector<Value*> operands = {plain.operands[0], plain.operands[1], bias};
    if (call.other) operands.push_back(now(call.other));
    graph::Attrs attrs = plain.attrs;
    attrs["activation"] = std::string("relu");
    Value* made = m.make(Op::conv, std::move(operands), std::move(attrs));
    made->type.strides = relu->out()->type.strides;
    return made;
  }

  Graph& g_;
  const PlanOptions& options_;
  const std::vector<int> uses_;  ///< by value id, before anything is made
  std::unordered_map<Value*, Value*> with_;
  std::vector<Node*> gone_;
  std::vector<std::pair<Node*, Call>> convolutions_;  ///< by the relu behind
};

}  // namespace

bool end_in_activations(Graph& g, const PlanOptions& options) {
  return options.ends_in && Ending(g, options).run();
}

}  // namespace bolt::loops

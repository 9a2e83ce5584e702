// loops/merge_products.cpp
#include "loops/merge_products.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "loops/roles.h"

namespace bolt::loops {
namespace {

using graph::Graph;
using graph::Node;
using graph::Op;
using graph::OpKind;
using graph::Value;
using Products = std::vector<Node*>;

constexpr int64_t kAccess = 16;  // bytes: where a part of a row begins, and ends

Value* weight_of(const Node* product) { return product->operands[1]; }
Value* bias_of(const Node* product) { return product->operands.size() > 2 ? product->operands[2] : nullptr; }

class Merger {
 public:
  Merger(Graph& g, const PlanOptions& options) : g_(g), options_(options) {}

  bool run() {
    if (!options_.merges) return false;
    constant_ = find_constants(g_, options_);
    find_returned();
    find_readers();
    std::vector<Products> groups = of_one_operand();
    join(groups);
    for (const Products& group : groups)
      for (Products& alike : of_one_size(group))
        if (asked(alike)) batch(alike);
    g_.replace_uses(with_);
    for (Node* product : merged_) g_.erase(product);
    return !merged_.empty();
  }

 private:
  bool asked(const Products& products) const {
    return products.size() > 1 && options_.merges({products.begin(), products.end()});
  }

  // ---- which products

  /// By themselves or through views.
  void find_returned() {
    for (const graph::Output& o : g_.outputs)
      for (const Value* v = o.value; v;
           v = v->def && kind_of(v->def) == OpKind::View ? v->def->operands[0] : nullptr)
        returned_.insert(v);
  }
  void find_readers() {
    for (const auto& n : g_.nodes)
      for (const Value* v : n->operands) readers_[v].push_back(n.get());
  }

  /// In the order of the first of each.
  std::vector<Products> of_one_operand() const {
    std::vector<Products> found;
    std::unordered_map<const Value*, size_t> places;
    for (const auto& n : g_.nodes) {
      if (n->op != Op::linear || returned_.contains(n->out()) || constant_[n->out()->id]) continue;
      const auto [place, fresh] = places.try_emplace(n->operands[0], found.size());
      if (fresh) found.emplace_back();
      found[place->second].push_back(n.get());
    }
    std::erase_if(found, [](const Products& group) { return group.size() < 2; });
    return found;
  }

  // ---- weights that lie side by side

  /// Takes the products out of their groups that become one.
  void join(std::vector<Products>& groups) {
    std::map<std::string, std::vector<std::pair<Products*, Products>>> kinds;  // of groups alike
    for (Products& group : groups) {
      Products products;
      std::ranges::copy_if(group, std::back_inserter(products),
                           [&](const Node* n) { return may_be_joined(n); });
      const bool biased = std::ranges::all_of(products, bias_of);
      if (products.size() > 1 && (biased || std::ranges::none_of(products, bias_of)))
        kinds[kind_of_group(products)].emplace_back(&group, std::move(products));
    }
    for (auto& [kind, alike] : kinds) {
      const auto lying = std::ranges::count_if(alike, [&](const auto& g) { return lies_joined(g.second); });
      if (2 * lying <= std::ssize(alike)) continue;
      const Products in_order = by_address(
          std::ranges::find_if(alike, [&](const auto& g) { return lies_joined(g.second); })->second);
      for (auto& [group, products] : alike) {
        if (!asked(products)) continue;
        join(in_the_order_of(in_order, products));
        std::erase_if(*group, [&](Node* n) { return std::ranges::find(products, n) != products.end(); });
      }
    }
  }

  bool may_be_joined(const Node* n) const {
    const graph::Type& weight = weight_of(n)->type;
    const Value* bias = bias_of(n);
    if (weight_of(n)->def || !constant_[weight_of(n)->id] || !weight.is_contiguous()) return false;
    if (bias && (!constant_[bias->id] || bias->type.rank() != 1)) return false;
    if (!weight.sizes[0].is_const() || weight.sizes[0].value() * dtype_bytes(weight.dtype) % kAccess != 0)
      return false;
    return n->out()->type.rank() > 1 && are_read_in_rows(n->out());
  }
  bool are_read_in_rows(const Value* v) const {
    const auto readers = readers_.find(v);
    return readers == readers_.end() || std::ranges::all_of(readers->second, [&](const Node* n) {
             if (kind_of(n) == OpKind::View) return are_read_in_rows(n->out());
             return n->op == Op::sdpa || !is_call(n);
           });
  }
  static std::string kind_of_group(const Products& products) {
    std::string kind = products.front()->operands[0]->type.str();
    for (const Node* n : products) kind += " " + weight_of(n)->type.str() + (bias_of(n) ? "+" : "");
    return kind;
  }

  uintptr_t address(const Node* n) const { return g_.inputs[weight_of(n)->index].address; }
  Products by_address(Products products) const {
    std::ranges::stable_sort(products, {}, [&](const Node* n) { return address(n); });
    return products;
  }
  bool lies_joined(const Products& products) const {
    const Products in_order = by_address(products);
    for (size_t i = 0; i + 1 < in_order.size(); ++i) {
      const graph::Type& weight = weight_of(in_order[i])->type;
      const auto bytes = static_cast<uintptr_t>(weight.numel().value() * dtype_bytes(weight.dtype));
      if (!address(in_order[i]) || address(in_order[i + 1]) - address(in_order[i]) != bytes) return false;
    }
    return true;
  }
  /// `products` in the order that `in_order` has of a group alike, so that layers stay equal.
  Products in_the_order_of(const Products& in_order, const Products& products) const {
    Products nodes = in_order, out;
    std::ranges::sort(nodes, {}, [](const Node* n) { return n->out()->id; });  // as the graph has them
    for (const Node* n : in_order) out.push_back(products[std::ranges::find(nodes, n) - nodes.begin()]);
    return out;
  }

  void join(const Products& products) {
    Node* first = *std::ranges::min_element(products, {}, [](const Node* n) { return n->out()->id; });
    std::vector<Value*> weights, biases;
    for (const Node* n : products) {
      weights.push_back(weight_of(n));
      if (!bias_of(n)) continue;
      move_before(bias_of(n)->def, first);
      biases.push_back(bias_of(n));
    }
    std::vector<Value*> operands = {first->operands[0], made(Op::joined, std::move(weights), {}, first)};
    if (!biases.empty()) operands.push_back(made(Op::cat, std::move(biases), {{"dim", int64_t{0}}}, first));
    Value* all = made(Op::linear, std::move(operands), {}, first);
    Sym start = 0;
    for (Node* product : products) {
      const Sym width = product->out()->type.sizes.back();
      replace(product, slice(all, all->type.rank() - 1, start, width, product, first));
      start += width;
    }
  }

  // ---- weights of one size

  /// In the order of the first of each, and of where the weights lie: none may lie before the first.
  std::vector<Products> of_one_size(const Products& group) const {
    std::vector<Products> found;
    for (Node* n : group) {
      if (bias_of(n) || !is_there_before(weight_of(n))) continue;
      const auto alike = std::ranges::find_if(found, [&](const Products& products) {
        return weight_of(products.front())->type.sizes == weight_of(n)->type.sizes;
      });
      if (alike == found.end())
        found.push_back({n});
      else
        alike->push_back(n);
    }
    return found;
  }

  /// Can it be made before everything else in the graph? Inputs, what is computed once, and views of these.
  bool is_there_before(const Value* v) const {
    const Value* base = view_base(v);
    return !base->def || constant_[base->id] != 0;
  }

  void batch(Products products) {
    Node* first = products.front();
    const auto input = [&](const Node* n) { return !weight_of(n)->def; };
    if (std::ranges::all_of(products, input)) products = by_address(std::move(products));
    std::vector<Value*> operands = {first->operands[0]};
    for (const Node* product : products) {
      move_before(weight_of(product)->def, first);
      operands.push_back(weight_of(product));
    }
    Value* all = made(Op::linears, std::move(operands), {}, first);
    for (size_t i = 0; i < products.size(); ++i) {
      Node* product = products[i];
      Value* part = slice(all, 0, static_cast<int64_t>(i), 1, product, first);
      replace(
          product,
          g_.make(Op::reshape, {part}, {{"sizes", product->out()->type.sizes}}, product->loc, first)->out());
    }
  }

  // ---- changes to the graph

  Value* made(Op op, std::vector<Value*> operands, graph::Attrs attrs, Node* before) {
    return g_.make(op, std::move(operands), std::move(attrs), before->loc, before)->out();
  }
  Value* slice(Value* of, int64_t dim, Sym start, Sym length, const Node* product, Node* before) {
    return g_.make(Op::slice, {of}, graph::slice_attrs(dim, start, length), product->loc, before)->out();
  }
  void replace(Node* product, Value* part) {
    with_[product->out()] = part;
    merged_.push_back(product);
  }

  /// The node, and what it is made of, where that stands behind `place`.
  void move_before(Node* node, Node* place) {
    if (!node || !is_behind(node, place)) return;
    for (const Value* v : node->operands) move_before(v->def, place);
    g_.nodes.splice(place->position, g_.nodes, node->position);
  }
  /// Nodes are numbered in their order, and what was moved is not looked at twice.
  bool is_behind(const Node* node, const Node* place) {
    return node->out()->id > place->out()->id && moved_.insert(node).second;
  }

  Graph& g_;
  const PlanOptions& options_;
  std::vector<char> constant_;
  std::unordered_set<const Value*> returned_;
  std::unordered_map<const Value*, std::vector<const Node*>> readers_;
  std::unordered_set<const Node*> moved_;
  std::unordered_map<Value*, Value*> with_;
  std::vector<Node*> merged_;
};

}  // namespace

bool merge_products(Graph& graph, const PlanOptions& options) { return Merger(graph, options).run(); }

}  // namespace bolt::loops

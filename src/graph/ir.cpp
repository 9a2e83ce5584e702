// graph/ir.cpp
// Types, nodes and the graph that owns them.
#include "graph/ir.h"

#include <algorithm>
#include <span>

#include "graph/op_rules.h"
#include "support/error.h"

namespace bolt::graph {

// ---- types ----

Syms strides_in_order(const Syms& sizes, const std::vector<int>& order) {
  Syms strides(sizes.size());
  Sym step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    if (!sizes[order[i]].is_const(0)) step *= sizes[order[i]];  // as ATen: an empty dimension counts as one
  }
  return strides;
}

Syms contiguous_strides(const Syms& sizes) {
  Syms strides(sizes.size());
  Sym step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    if (!sizes[i].is_const(0)) step *= sizes[i];
  }
  return strides;
}

bool Type::is_contiguous() const {
  Sym step = 1;
  for (int i = rank(); i-- > 0;) {
    if (sizes[i].is_const(0)) return true;
    if (sizes[i].is_const(1)) continue;
    if (strides[i] != step) return false;
    step *= sizes[i];
  }
  return true;
}

// ---- nodes ----

namespace detail {
void missing_attr(const Node& node, std::string_view name) {
  const char* fault = node.has_attr(name) ? " has another type" : " is missing";
  throw Error(ErrorKind::Internal,
              bolt::detail::concat("attribute ", name, " of ", op_info(node.op).name, fault));
}
}  // namespace detail

Sym Node::sym(std::string_view name) const {
  auto it = attrs.find(name);
  if (it != attrs.end()) {
    if (const int64_t* v = std::get_if<int64_t>(&it->second)) return *v;
    if (const auto* list = std::get_if<Syms>(&it->second); list && list->size() == 1) return (*list)[0];
  }
  detail::missing_attr(*this, name);
}

std::vector<int64_t> Node::ints(std::string_view name) const { return to_numbers(attr<Syms>(name)); }

// ---- graph ----

namespace {
/// Its attributes are normal already.
Node* insert(Graph& g, Op op, std::vector<Value*> operands, Attrs attrs, std::span<Type> types, Loc loc,
             Node* before) {
  auto owned = std::make_unique<Node>();
  Node* node = owned.get();
  node->op = op;
  node->operands = std::move(operands);
  node->attrs = std::move(attrs);
  node->loc = std::move(loc);
  node->outputs.reserve(types.size());
  for (Type& type : types) {
    auto v = std::make_unique<Value>();
    v->def = node;
    v->index = static_cast<int>(node->outputs.size());
    v->type = std::move(type);
    node->outputs.push_back(std::move(v));
  }
  node->position = g.nodes.insert(before ? before->position : g.nodes.end(), std::move(owned));
  return node;
}
}  // namespace

Value* Graph::add_input(Type type, InputKind kind, std::string name) {
  auto v = std::make_unique<Value>();
  v->index = static_cast<int>(inputs.size());
  v->type = std::move(type);
  v->name = std::move(name);
  inputs.push_back({std::move(v), kind});
  return inputs.back().value.get();
}

Value* Graph::add_input(const Input& like) {
  Value* made = add_input(like.value->type, like.kind, like.value->name);
  inputs.back().address = like.address;
  return made;
}

Node* Graph::make(Op op, std::vector<Value*> operands, Attrs attrs, Loc loc, Node* before) {
  const OpInfo& info = op_info(op);
  int n = static_cast<int>(operands.size());
  BOLT_CHECK(n >= info.min_operands && (info.max_operands < 0 || n <= info.max_operands), info.name, " with ",
             n, " operands");
  normalize_attrs(op, attrs);
  Type type = infer_type(op, operands, attrs);
  return insert(*this, op, std::move(operands), std::move(attrs), {&type, 1}, std::move(loc), before);
}

Node* Graph::make_typed(Op op, std::vector<Value*> operands, Attrs attrs, std::vector<Type> types, Loc loc,
                        Node* before) {
  normalize_attrs(op, attrs);
  return insert(*this, op, std::move(operands), std::move(attrs), types, std::move(loc), before);
}

void Graph::replace_uses(Value* from, Value* to) {
  for (auto& node : nodes)
    for (Value*& operand : node->operands)
      if (operand == from) operand = to;
  for (Output& out : outputs)
    if (out.value == from) out.value = to;
}

void Graph::replace_uses(const std::unordered_map<Value*, Value*>& with) {
  if (with.empty()) return;
  auto final_value = [&](Value* v) {
    for (auto it = with.find(v); it != with.end(); it = with.find(v)) v = it->second;
    return v;
  };
  for (auto& node : nodes)
    for (Value*& operand : node->operands) operand = final_value(operand);
  for (Output& out : outputs) out.value = final_value(out.value);
}

void Graph::erase(Node* node) { nodes.erase(node->position); }

void Graph::renumber() {
  int id = 0;
  for (Input& in : inputs) in.value->id = id++;
  for (auto& node : nodes)
    for (auto& out : node->outputs) out->id = id++;
}

std::vector<int> Graph::use_counts() const {
  int top = -1;
  for (const Input& in : inputs) top = std::max(top, in.value->id);
  for (const auto& node : nodes)
    for (const auto& out : node->outputs) top = std::max(top, out->id);
  std::vector<int> counts(top + 1);
  auto count = [&](const Value* v) {
    BOLT_CHECK(v->id >= 0 && v->id <= top, "use_counts before renumber");
    ++counts[v->id];
  };
  for (const auto& node : nodes)
    for (const Value* operand : node->operands) count(operand);
  for (const Output& out : outputs) count(out.value);
  return counts;
}

std::unique_ptr<Graph> clone(const Graph& g) {
  auto copy = std::make_unique<Graph>();
  copy->name = g.name;
  std::unordered_map<const Value*, Value*> to;
  for (const Input& in : g.inputs) to[in.value.get()] = copy->add_input(in);
  for (const auto& node : g.nodes) {
    std::vector<Value*> operands;
    for (const Value* v : node->operands) operands.push_back(to.at(v));
    std::vector<Type> types;
    for (const auto& out : node->outputs) types.push_back(out->type);
    Node* made = copy->make_typed(node->op, std::move(operands), node->attrs, std::move(types), node->loc);
    for (size_t i = 0; i < node->outputs.size(); ++i)
      to[node->outputs[i].get()] = made->out(static_cast<int>(i));
  }
  for (const Output& out : g.outputs)
    copy->outputs.push_back({to.at(out.value), out.write_to, out.may_be_part});
  copy->renumber();
  return copy;
}

void substitute(Graph& g, const std::function<Sym(Sym)>& fn) {
  auto replace = [&](Syms& list) {
    for (Sym& s : list) s = bolt::substitute(s, fn);
  };
  auto retype = [&](Value& v) {
    replace(v.type.sizes);
    replace(v.type.strides);
  };
  for (Input& in : g.inputs) retype(*in.value);
  for (auto& node : g.nodes) {
    for (auto& [name, value] : node->attrs)
      if (auto* list = std::get_if<Syms>(&value)) replace(*list);
    for (auto& v : node->outputs) retype(*v);
  }
}

}  // namespace bolt::graph

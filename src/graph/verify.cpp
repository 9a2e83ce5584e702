// graph/verify.cpp
// The invariants listed in verify.h, in that order.
#include "graph/verify.h"

#include <unordered_set>

#include "graph/op_rules.h"
#include "support/error.h"
#include "support/pointer_map.h"

namespace bolt::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& g) : g_(g) {}

  void run() {
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      const Value* v = g_.inputs[i].value.get();
      BOLT_CHECK(v && !v->def && v->index == static_cast<int>(i), "graph input ", i,
                 " does not know its place");
      BOLT_CHECK(v->type.sizes.size() == v->type.strides.size(), "graph input ", i, " lacks strides");
      known_[v] = true;
    }
    for (const auto& node : g_.nodes) {
      try {
        check(*node);
      } catch (const Error& e) {
        throw Error(e.kind(), std::string(e.what()) + " in " + describe(*node));
      }
      for (const auto& out : node->outputs) known_[out.get()] = true;
    }
    check_outputs();
  }

 private:
  void check(const Node& node) {
    const OpInfo& info = op_info(node.op);
    for (const Value* v : node.operands) {
      BOLT_CHECK(v, "an operand is null");
      BOLT_CHECK(known_.find(v), "an operand is not defined before its use");
    }
    int n = static_cast<int>(node.operands.size());
    BOLT_CHECK(n >= info.min_operands && (info.max_operands < 0 || n <= info.max_operands), n, " operands");
    BOLT_CHECK(node.op == Op::extern_call || node.outputs.size() == 1, node.outputs.size(), " results");
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value* v = node.outputs[i].get();
      BOLT_CHECK(v->def == &node && v->index == static_cast<int>(i), "result ", i,
                 " does not know its place");
      BOLT_CHECK(v->type.sizes.size() == v->type.strides.size(), "result ", i, " lacks strides");
    }
    if (node.op == Op::extern_call) return;
    Attrs attrs = node.attrs;
    normalize_attrs(node.op, attrs);
    bool normal = attrs.size() == node.attrs.size();
    for (const auto& [name, value] : node.attrs) normal &= attrs.at(name).index() == value.index();
    BOLT_CHECK(normal, "attributes are not in their normal form");
    Type expected = infer_type(node.op, node.operands, node.attrs);
    const Type& type = node.out()->type;
    BOLT_CHECK(type.sizes == expected.sizes && type.dtype == expected.dtype, "the result is ", type.str(),
               ", not ", expected.str());
  }

  void check_outputs() {
    std::unordered_set<int> written;
    for (const Output& out : g_.outputs) {
      BOLT_CHECK(out.value && known_.find(out.value), "an output is no value of the graph");
      if (out.write_to < 0) continue;
      BOLT_CHECK(out.write_to < static_cast<int>(g_.inputs.size()), "a write to input ", out.write_to);
      const Type& to = g_.inputs[out.write_to].value->type;
      BOLT_CHECK(to.sizes == out.value->type.sizes && to.dtype == out.value->type.dtype, "a write of ",
                 out.value->type.str(), " into ", to.str());
      BOLT_CHECK(written.insert(out.write_to).second, "input ", out.write_to, " is written twice");
    }
  }

  const Graph& g_;
  PointerMap<bool> known_;
};

}  // namespace

void verify(const Graph& g) { Verifier(g).run(); }

std::string describe(const Node& node) {
  std::string out(op_info(node.op).name);
  out += "(";
  for (size_t i = 0; i < node.operands.size(); ++i)
    out += (i ? ", " : "") + (node.operands[i] ? node.operands[i]->type.str() : std::string("null"));
  out += ")";
  if (!node.outputs.empty()) out += " -> " + node.out()->type.str();
  if (node.loc.line > 0) out += bolt::detail::concat(" # ", node.loc.file, ":", node.loc.line);
  return out;
}

}  // namespace bolt::graph

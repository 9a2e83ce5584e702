// graph/passes/vector_products.cpp
// Products with a vector -> products of single elements and their sums, where a device's kernels read the
// matrix as quickly as its library does:
//
//   matmul(a[.., M, K], v[.., K, 1])  -> sum over K of a * v as a row
//   matmul(v[.., 1, K], b[.., K, N])  -> sum over K of v as a column * b
//   matmul(v[.., M, 1], w[.., 1, N])  -> v * w
//
// Each element of the matrix is read once, so memory bounds it whoever computes it; but a kernel computes
// what the operands are made of on the way, and ends in what is made of the result. A library's product of
// matrices takes such operands for matrices of one row, and adds up one element after the other. Products
// with a weight that stays, which is packed, are left to `linear`. Halves are multiplied and added in
// float32.
#include "graph/device_facts.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace bolt::graph {
namespace {

Value* as_pointwise(const Maker& m, const Node& node) {
  const DType type = compute_type(node.out()->type.dtype);
  Value *a = m.cast(node.operands[0], type), *b = m.cast(node.operands[1], type);
  Syms of_a = a->type.sizes, of_b = b->type.sizes;
  const size_t row = of_a.size() - 2, column = row + 1, last = of_b.size() - 1;
  if (of_a[column].is_const(1)) return m.mul(a, b);
  if (of_b[last].is_const(1)) {
    std::swap(of_b[last], of_b[last - 1]);
    Value* products = m.mul(a, m.reshape(b, of_b));
    return m.reduce(Op::sum, products, {products->type.rank() - 1}, true);
  }
  if (!of_a[row].is_const(1)) return nullptr;
  std::swap(of_a[row], of_a[column]);
  Value* products = m.mul(m.reshape(a, of_a), b);
  return m.reduce(Op::sum, products, {products->type.rank() - 2}, true);
}

}  // namespace

bool vector_products(Graph& g) {
  const std::vector<bool> fixed = static_values(g);
  return rewrite(g, [&](Node* node) -> Value* {
    const Type& t = node->out()->type;
    if (node->op != Op::matmul || !is_float(t.dtype) || !facts_of(t.device).sums_products) return nullptr;
    const Value* weight = node->operands[1];
    if (weight->id >= 0 && fixed[weight->id]) return nullptr;
    const Maker m(g, node);
    Value* made = as_pointwise(m, *node);
    return made ? lying_as(m.cast(made, t.dtype), node->out()) : nullptr;
  });
}

}  // namespace bolt::graph

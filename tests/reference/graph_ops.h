// tests/reference/graph_ops.h
// What the parts of the reference execution share.
#pragma once

#include <functional>
#include <vector>

#include "tests/reference/graph.h"

namespace bolt::graph::reference {

using Shape = std::vector<int64_t>;
using Operands = std::vector<const HostTensor*>;

/// A node whose sizes and attributes have been made numbers.
struct ReferenceCall {
  const Node& node;
  const Operands& in;
  std::function<int64_t(Sym)> number;
  HostTensor out;  // dtype and sizes set, cells zero

  Op op() const { return node.op; }
  const HostTensor& arg(int i = 0) const { return *in[i]; }
  Shape ints(std::string_view name) const {
    Shape r;
    for (Sym s : node.attr<Syms>(name)) r.push_back(number(s));
    return r;
  }
  int64_t sym(std::string_view name) const { return number(node.sym(name)); }
  int64_t dim() const { return node.attr<int64_t>("dim"); }
};

Shape row_major(const Shape& sizes);
int64_t count(const Shape& sizes);
/// Calls fn with each index of the shape, in row-major order.
void for_each(const Shape& sizes, const std::function<void(const Shape&)>& fn);
/// The cell at `index`, aligned from the right, dimensions of size one standing for all.
int64_t offset(const HostTensor& t, const Shape& index);
inline Cell at(const HostTensor& t, const Shape& index) { return t.cells[offset(t, index)]; }
// One function per group of rows; each fills call.out.
void pointwise(ReferenceCall& call);
void create(ReferenceCall& call);
void view(ReferenceCall& call);
void reduce(ReferenceCall& call);
void index(ReferenceCall& call);
void scan(ReferenceCall& call);
void scatter(ReferenceCall& call);
void composite(ReferenceCall& call);
void contraction(ReferenceCall& call);

}  // namespace bolt::graph::reference

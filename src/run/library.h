// run/library.h
// One library step: a contraction or composite of the graph, run by ATen.
//
// The table goes from graph op to functions over tensors. ATen's kernels allocate their results; the step's
// buffers then own them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "graph/ir.h"
#include "lower/functionalize.h"
#include "record/generators.h"

namespace bolt::run {

struct LibraryRow {
  graph::Op op;
  std::vector<at::Tensor> (*run)(const graph::Node& node, const std::vector<at::Tensor>& operands);
  /// Has the result written to `out`, which is as the program has it. False: nothing has been done. Null: it
  /// never can.
  bool (*run_into)(const graph::Node& node, const std::vector<at::Tensor>& operands,
                   const at::Tensor& out) = nullptr;
};

/// Of a node, looked up once when the program is built.
const LibraryRow& find_library(const graph::Node& node);

/// `numbers`: the values of all symbols among the arguments, in order. `generators`: those of this call of
/// the program. `shows`: a view of an operand need not be copied.
std::vector<at::Tensor> run_extern(const lower::ExternCall& call, const std::vector<at::Tensor>& operands,
                                   const std::vector<int64_t>& numbers, record::CallGenerators& generators,
                                   bool shows = false);

}  // namespace bolt::run

// tests/reference/graph.h
// Runs a Graph the slow and obvious way on host memory: the oracle of the passes' and the backends' tests.
//
// Floating values are doubles and are rounded only by `cast`, and not between operations: two graphs that
// mean the same agree to about 1e-12, whatever their element types. Integers are exact and wrap at their
// width. Everything but extern_call and complex numbers is there. Symbolic sizes take their values from the
// inputs.
#pragma once

#include <vector>

#include "graph/cell.h"

namespace bolt::graph {

struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  std::vector<Cell> cells;  // row-major

  int64_t numel() const { return static_cast<int64_t>(cells.size()); }
  bool is_real() const { return is_float(dtype); }
};

HostTensor make_tensor(DType dtype, std::vector<int64_t> sizes);
/// From and to memory of the given element type and strides (in elements).
HostTensor load_tensor(DType dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                       const void* data);
void store_tensor(const HostTensor& t, const std::vector<int64_t>& strides, void* data);

/// One tensor per graph output, writes included.
/// `rounds_as_eager`: all halves are rounded, but for numbers that are operands.
std::vector<HostTensor> run_reference(const Graph& g, const std::vector<HostTensor>& inputs,
                                      bool rounds_as_eager = false);

/// The largest |a - b| / max(1, |b|); infinite when shapes, types or NaNs differ.
double difference(const HostTensor& a, const HostTensor& b);

}  // namespace bolt::graph

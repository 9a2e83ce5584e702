// loops/cost.h
// Kernel or node -> what it costs: the one model by which fusion is decided, on every device.
//
// Work is what a kernel makes its device do: bytes that it reads and writes, and vector instructions for each
// element (graph/pointwise.h gives those of an operation). A value that a kernel computes under several
// indices, as both halves of a `cat` do with what they share, is worked out once for each of them: the
// difference to the work of the nodes by themselves is what a fusion repeats. Arithmetic on loop variables
// alone is addressing and counts as no work.
//
// A kernel's price is its time: the start, and the longer one of moving the bytes and executing the
// instructions. Two kernels become one where that lowers the sum of their prices; what decides is so the
// bytes and the start that are saved against the work that is repeated. On top of that no kernel repeats more
// than a fifth of its nodes' work, unless all of it takes less time than a start: a price is an estimate, and
// this bounds what a wrong one can cost.
//
// Not priced: which cache the bytes come from, and how well a schedule fills the machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/device_facts.h"
#include "loops/kernel.h"
#include "loops/plan.h"

namespace bolt::loops {

using graph::MachineSpeed;

struct KernelWork {
  double bytes = 0, instructions = 0;
};

/// Nanoseconds; symbols in sizes stand for 64 (estimate).
BOLT_API double price(const MachineSpeed& machine, const KernelWork& work);

/// May a kernel do this work for nodes that do `alone` by themselves?
BOLT_API bool repeats_little(const MachineSpeed& machine, double instructions, double alone);

/// Is a kernel that scans x along `dim` by this operation (Op::scan) no slower than a library's call? A row
/// is one block's, where a library has all blocks work at one row.
BOLT_API bool scans_well(const graph::Type& x, int dim, std::string_view op);

/// Is a kernel that replaces so many runs of so many elements each, in their order, no slower than a
/// library's call that lets threads share them?
BOLT_API bool puts_well(graph::Device device, Sym runs, Sym elements);

/// Is a kernel that asks for each element of a matrix which of so many blocks it belongs to no slower than a
/// library's call, which writes zeros and then each block over them?
BOLT_API bool places_blocks_well(graph::Device device, DType type, Sym elements, size_t blocks);

/// Each load and store by itself, and each expression over the dimensions that it varies over.
BOLT_API KernelWork work_of(const Kernel& kernel);

/// Instructions of a node that is a kernel by itself; of calls, views and constants none.
BOLT_API double instructions_of(const graph::Node& node);

/// Instructions of all nodes of a graph that kernels compute.
BOLT_API double instructions_of(const graph::Graph& graph);

/// Of nodes that are a kernel each.
double instructions_of(const std::vector<const graph::Node*>& nodes);

/// What a step that runs a kernel makes its device do, and how much of it its nodes by themselves would not
/// (a share of the instructions). Of a product that is what its epilogue does.
struct StepCost {
  KernelWork work;
  double repeated, nanoseconds;
};
BOLT_API StepCost cost_of(const Plan& plan, const Step& step);

/// A table: each step that runs a kernel with its bytes, instructions and price, and their sum beside what
/// the plan's graph takes by itself. Of a plan that was read or put together of equal layers, the graph holds
/// less than the steps do.
BOLT_API std::string print_costs(const Plan& plan);

}  // namespace bolt::loops

// loops/fuse.h
// Graph -> groups: which nodes become one kernel, in an order that runs.
//
// 1. Roles (roles.h). Contractions, composites and externs are library calls. Views and constants are
//    free: each kernel repeats them as index arithmetic. So is pointwise work that is cheaper done again
//    than stored (a cast of an input that several kernels read). A view that somebody needs in memory and
//    that strides cannot express is a copy, and fused like any other node. The rest starts as one unit
//    per node (units.h).
// 2. Into consumers. In execution order each node's unit is merged with the units it reads from, largest
//    value first. What only the unit reads is not stored. A merge is legal when it makes no cycle, keeps
//    within the limits, keeps fold work (of parameters alone) apart from the rest, and the union still
//    has one iteration space (space.h). It pays where one kernel takes less time than two (cost.h): what
//    it repeats, for each row of a larger result or under other indices (cats, pads, slices), is priced
//    against the bytes and the start that it saves. Only a built kernel tells the latter, so the merge is
//    built where it may be.
// 3. Siblings. Units over one shape that read the same large value are merged, so that it is read once.
// 4. Where it is read. What a kernel computes for one other alone moves there, and what several can make
//    of what they read anyway is made by each (compute_where_read.h).
//
// Units and calls stand in one topological order throughout; a merge is tested by searching the stretch of
// the order between the two, and the stretch is reordered around the merged group.
#pragma once

#include <optional>
#include <vector>

#include "loops/plan.h"
#include "loops/space.h"

namespace bolt::loops {

/// One step to be: a group, or a call of a library.
struct Unit {
  Group group;                        // empty for a call
  const graph::Node* call = nullptr;  // with a group too: the group is the epilogue of the call
  bool fold = false;                  // depends on parameters and constants only
  std::optional<int64_t> packed;  // a call that the code generator computes: floats of its packed weights,
                                  // 0 where none are packed
};

struct Fusion {
  Usage usage;
  std::vector<Unit> units;     // in execution order
  std::vector<Syms> strides;   // by value id: memory of materialized values, else empty
  std::vector<char> constant;  // by value id: depends on parameters and constants only
};

/// Which dimension of a contraction's result is the column of its tiles: the last, or a convolution's
/// channels.
int accumulator_column(const graph::Node& call);

/// The operands of a call and how they lie in memory.
PlannedContraction describe_call(const Fusion& f, const graph::Node& node);

Fusion fuse(const graph::Graph& graph, const PlanOptions& options);

}  // namespace bolt::loops

// loops/views.h
// View operations as index arithmetic: which element of the operand is element (i, j, ...) of the result, and
// back.
//
// `up` goes from an index of the result to the index of the operand it shows; every view has it. `down` goes
// from an index that runs over the whole operand to the index of the result it becomes; only a view that
// keeps all elements has it (reshape, permute, flip).
//
// A reshape is split into the smallest groups of dimensions with equal products, [2, 6, 5] -> [2, 3, 2, 5]
// being (2|2)(6|3, 2)(5|5), and each group is linearised and cut up again; so symbolic sizes that a reshape
// leaves alone never meet a division. Divisions that do remain vanish when the loop variable is split
// (space.h).
#pragma once

#include <optional>
#include <vector>

#include "graph/ir.h"

namespace bolt::loops {

using Index = Syms;  // one entry per dimension of a value

/// Sizes [begin, end) of the one side that hold the same elements as those of the other side.
struct ReshapeGroup {
  int from_begin, from_end, to_begin, to_end;
};
std::vector<ReshapeGroup> reshape_groups(const Syms& from, const Syms& to);

/// The index of the operand (type `operand`) for an index of the result of view `node`.
Index view_up(const graph::Node& node, const Index& result);
std::optional<Index> view_down(const graph::Node& node, const Index& operand);

/// NumPy broadcasting: the index of an operand of type `operand` of a pointwise result of rank result.size().
Index broadcast_up(const graph::Type& operand, const Index& result);

/// The row-major position of an index, and back.
Sym linearize(const Syms& sizes, const Index& index);
Index delinearize(const Syms& sizes, Sym position);

/// Strides of the view over memory in which the operand has `strides` and `offset`; nothing if there are
/// none.
struct StridedView {
  Syms strides;
  Sym offset;
};
std::optional<StridedView> view_strides(const graph::Node& node, const StridedView& operand);

/// Integer attributes that may be symbolic: an int64 or a list of one.
Sym sym_attr(const graph::Node& node, std::string_view name, Sym fallback = 0);
/// The attribute `dims` (or another list) as plain integers.
std::vector<int> int_list(const graph::Node& node, std::string_view name);

}  // namespace bolt::loops

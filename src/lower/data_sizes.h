// lower/data_sizes.h
// Sizes that are data (support/symbols.h), where lowering meets them: the symbols of an operator's
// results, and what must hold because such a size may come to 0.
#pragma once

#include <vector>

#include "graph/ir.h"
#include "lower/sizes.h"
#include "record/tape.h"

namespace bolt::lower {

/// Is one of `made`, the results of entry `entry`, as large as its data say?
bool makes_data_sizes(const record::Tape& tape, const record::TensorIds& made, int entry);

/// The sizes of these results, by a row of extern_sizes that has 0 where they are data. They are as many in
/// all results.
std::vector<Syms> with_data_sizes(const record::Tape& tape, const record::TensorIds& made,
                                  std::vector<Syms> sizes, const Sizes& all);

/// What is reduced or contracted over nothing raises in eager, or is no number that our kernels would come
/// to: of the nodes behind `seen`, which is brought up to date, that is ruled out.
void rule_out_nothing(const graph::Graph& graph, const graph::Node*& seen, Sizes& sizes);

}  // namespace bolt::lower

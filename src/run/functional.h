// run/functional.h
// backend="aot_eager": the functional graph, node by node, each node an ATen call. Tells a fault of recording
// or functionalizing from one of the passes, the loops or the code.
#pragma once

#include "run/attempt.h"
#include "run/foreign.h"

namespace bolt::run {

/// What a region runs; `wanted` of lowered's outputs are results. With `symbols` the graph is made anew for
/// each set of values, and kept.
Foreign::Function run_functional(lower::Lowered lowered, size_t wanted, Attempts attempt,
                                 std::vector<lower::SizeSymbol> symbols);

}  // namespace bolt::run

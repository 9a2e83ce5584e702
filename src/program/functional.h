// program/functional.h
// backend="aot_eager": the functional graph, node by node, each node an ATen call. Tells a fault of recording
// or functionalizing from one of the passes, the loops or the code.
#pragma once

#include "program/attempt.h"
#include "program/region.h"

namespace bolt::program {

/// What a region runs; `wanted` of lowered's outputs are results. With `symbols` the graph is made anew for
/// each set of values, and kept.
Region::Function run_functional(autograd::Lowered lowered, size_t wanted, Attempts attempt,
                                std::vector<autograd::SizeSymbol> symbols);

}  // namespace bolt::program

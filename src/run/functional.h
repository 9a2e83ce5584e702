// run/functional.h
// backend="aot_eager": the functional graph, node by node, each node an ATen call. Tells a fault of recording
// or functionalizing from one of the passes, the loops or the code.
#pragma once

#include <memory>
#include <vector>

#include "run/foreign.h"
#include "run/recorded.h"

namespace bolt::run {

/// Takes the recording's tape. With `symbols` the graph is made anew for each set of values, and kept.
std::shared_ptr<Foreign> make_functional(lower::Lowered lowered, Recorded& recorded, SymbolTable symbols);

}  // namespace bolt::run

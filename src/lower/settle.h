// lower/settle.h
// What is left of a region's symbols when nothing more is decided: for tapes that are run as they are, and
// for the guards.
#pragma once

#include <string>
#include <vector>

#include "lower/functionalize.h"

namespace bolt::lower {

/// For a tape that is not compiled: who runs the operators computes sizes as eager does, so only their
/// arguments and the guards need expressions. They are what lowering finds, or all sizes are given up.
void settle(record::Tape& tape, const std::vector<record::TensorId>& wanted, const LowerOptions& options,
            const SymbolTable& computed, const std::string& why, Sizes& sizes);

/// What guards check, and what the program has to.
struct Settled {
  SymbolTable symbols;               ///< that were given to the region, solved ones included
  std::vector<SizeFact> facts;       ///< about these
  std::vector<SizeFact> about_data;  ///< about sizes that are data, which no guard knows
  Syms computed;                     ///< the numbers that Python goes on with
};
Settled settled(const Sizes& sizes, const SymbolTable& computed);

}  // namespace bolt::lower

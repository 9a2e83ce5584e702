// support/number_symbol.h
// Symbols in expressions over sizes that stand for something else than sizes of inputs. Python's numbers:
// `n3` is what step 3 of a region's numbers came to (guard/numbers.h), an int that is neither negative nor
// 2**31 or more; `f3` is step 3, a float, as the bits of the double. Sizes that are data: `u12_0` is size 0
// of tensor 12 of the tape, which only the operator that gives it knows (nonzero). Whoever meets a symbol
// asks here which kind it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/sym.h"

namespace bolt {

/// Of the values of ints that have a symbol; exclusive.
constexpr int64_t kNumberLimit = int64_t{1} << 31;

/// The symbol of an int step or of a float step.
inline Sym number_symbol(int step, bool is_float) {
  return is_float ? Sym::symbol("f" + std::to_string(step))
                  : Sym::symbol("n" + std::to_string(step), kNumberLimit);
}

/// Does it stand for the bits of a float?
inline bool is_float_symbol(const SymNode& symbol) {
  return symbol.op == SymOp::Symbol && symbol.name[0] == 'f';
}

/// The step that a symbol stands for; -1: it is no number's.
inline int number_step(const SymNode& symbol) {
  const bool number = is_float_symbol(symbol) || (symbol.op == SymOp::Symbol && symbol.name[0] == 'n');
  return number ? std::atoi(symbol.name.c_str() + 1) : -1;
}

inline Sym data_size(int tensor, int dim) {
  return Sym::symbol("u" + std::to_string(tensor) + "_" + std::to_string(dim));
}
inline bool is_data_size(const SymNode& symbol) {
  return symbol.op == SymOp::Symbol && symbol.name[0] == 'u';
}
/// Is it, or is it computed from, a size that is data?
inline bool holds_data_size(Sym s) {
  Syms inside;
  collect_symbols(s, &inside);
  return std::any_of(inside.begin(), inside.end(), [](Sym symbol) { return is_data_size(*symbol.node()); });
}

/// A symbol that a recording computed with, and what it was.
struct NumberSymbol {
  Sym symbol;
  int64_t recorded = 0;
  bool early = false;  ///< known once the guards held (guard::Phase): no guard can say what it is
};

}  // namespace bolt

// support/symbols.h
// The symbols of a recording and what their names say. Sizes: `t12_0` is size 0 of tensor 12 of the tape.
// Python's numbers: `n3` is what step 3 of a region's numbers came to (guard/numbers.h), an int that is
// neither negative nor 2**31 or more; `f3` is step 3, a float, as the bits of the double. Sizes that are
// data: `u12_0` is size 0 of tensor 12, which only the operator that gives it knows (nonzero). Numbers that
// are data: `d5` is the fifth that torch took out of a tensor on the way to an operator. Whoever makes or
// meets a symbol asks here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/sym.h"

namespace bolt {

/// Of the values of ints that have a symbol; exclusive.
constexpr int64_t kNumberLimit = int64_t{1} << 31;

namespace detail {

/// What stands behind the letter of a symbol of that kind; -1: it is of another.
inline int index_of(const SymNode& symbol, char kind) {
  const bool is = symbol.op == SymOp::Symbol && symbol.name[0] == kind;
  return is ? std::atoi(symbol.name.c_str() + 1) : -1;
}

inline std::string size_name(char kind, int tensor, int dim) {
  return kind + std::to_string(tensor) + "_" + std::to_string(dim);
}

}  // namespace detail

/// A size of a tensor of the tape.
inline Sym tape_symbol(int tensor, int dim) { return Sym::symbol(detail::size_name('t', tensor, dim)); }

/// Whose size a tape symbol is; -1: it is none.
inline int tensor_of_size(const SymNode& symbol) { return detail::index_of(symbol, 't'); }

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
  return detail::index_of(symbol, is_float_symbol(symbol) ? 'f' : 'n');
}

inline Sym data_size(int tensor, int dim) { return Sym::symbol(detail::size_name('u', tensor, dim)); }
/// Whose size it is, of a size that is data; -1: it is none.
inline int tensor_of_data_size(const SymNode& symbol) { return detail::index_of(symbol, 'u'); }
inline bool is_data_size(const SymNode& symbol) { return tensor_of_data_size(symbol) >= 0; }
/// Is it, or is it computed from, a size that is data?
inline bool holds_data_size(Sym s) {
  Syms inside;
  collect_symbols(s, &inside);
  return std::any_of(inside.begin(), inside.end(), [](Sym symbol) { return is_data_size(*symbol.node()); });
}

/// It never leaves the recorder, which puts the tensor in its place.
inline Sym data_number(size_t index) { return Sym::symbol("d" + std::to_string(index)); }
/// Is it, or is it computed from, a number that is data?
inline bool holds_data_number(Sym s) {
  Syms inside;
  collect_symbols(s, &inside);
  return std::any_of(inside.begin(), inside.end(),
                     [](Sym symbol) { return detail::index_of(*symbol.node(), 'd') >= 0; });
}

/// A symbol that a recording computed with, and what it was.
struct NumberSymbol {
  Sym symbol;
  int64_t recorded = 0;
  bool early = false;  ///< known once the guards held (guard::Phase): no guard can say what it is
};

}  // namespace bolt

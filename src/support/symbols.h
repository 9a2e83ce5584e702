// support/symbols.h
// Symbols: what each stands for, the table in which a region's stand, and the evaluator of expressions over
// such a table. Whoever makes or meets a symbol asks here.
//
// What a symbol stands for is its kind (SymbolKind), with the place that it is about:
//
//   t12_0  tape_size     size 0 of tensor 12 of the tape; from kStrideBit on (support/nesting.h), a stride
//   n3     int_number    step 3 of a region's numbers (guard/numbers.h), an int that is neither negative nor
//                        2**31 or more
//   f3     float_number  step 3, a float, as the bits of the double
//   u12_0  data_size     size 0 of tensor 12, which is data: only the operator that gives it knows (nonzero)
//   d5     data_number   the fifth number that torch took out of a tensor on the way to an operator
//   a7     atom          dimension 7 of the space that a group of loops runs over (loops/space.h)
//   g9     computed      what expression 9 of a kernel that is being built comes to (loops/build.cpp)
//
// All others are named: s0, a size of an input, and d0, a variable of a loop. The letters are for people and
// for texts, which are read back by them; nothing else looks at a name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "support/error.h"
#include "support/export.h"
#include "support/sym.h"

namespace bolt {

/// Of the values of ints that have a symbol; exclusive.
constexpr int64_t kNumberLimit = int64_t{1} << 31;

// ---- kinds

/// The symbol of a kind other than `named`. `upper`: its bound, of a kind whose symbols have each their own.
BOLT_API Sym symbol_of(SymbolId what, int64_t upper = 0);
/// The symbol that a text has this name for.
BOLT_API Sym symbol_named(std::string_view name);
/// Is it, or is it computed from, a symbol of this kind?
BOLT_API bool holds_kind(Sym s, SymbolKind kind);

/// As many symbols of the same kinds and bounds, named by their places here: what does not depend on whose
/// symbols it is given has these.
BOLT_API Syms by_place(const Syms& symbols);
/// An expression with the symbols of one list in the places of another's.
BOLT_API Sym renamed(Sym s, const Syms& from, const Syms& to);

inline bool is_kind(const SymNode& n, SymbolKind kind) {
  return n.op == SymOp::Symbol && n.what.kind == kind;
}
/// What a symbol of this kind is about; -1: it is of another.
inline int index_in(const SymNode& n, SymbolKind kind) { return is_kind(n, kind) ? n.what.of : -1; }

/// A size of a tensor of the tape.
inline Sym tape_symbol(int tensor, int dim) { return symbol_of({SymbolKind::tape_size, tensor, dim}); }
/// Whose size a tape symbol is; -1: it is none.
inline int tensor_of_size(const SymNode& symbol) { return index_in(symbol, SymbolKind::tape_size); }

/// The symbol of an int step or of a float step.
inline Sym number_symbol(int step, bool is_float) {
  return symbol_of({is_float ? SymbolKind::float_number : SymbolKind::int_number, step, -1});
}
/// Does it stand for the bits of a float?
inline bool is_float_symbol(const SymNode& symbol) { return is_kind(symbol, SymbolKind::float_number); }
/// The step that a symbol stands for; -1: it is no number's.
inline int number_step(const SymNode& symbol) {
  return index_in(symbol, is_float_symbol(symbol) ? SymbolKind::float_number : SymbolKind::int_number);
}

inline Sym data_size(int tensor, int dim) { return symbol_of({SymbolKind::data_size, tensor, dim}); }
/// Whose size it is, of a size that is data; -1: it is none.
inline int tensor_of_data_size(const SymNode& symbol) { return index_in(symbol, SymbolKind::data_size); }
inline bool is_data_size(const SymNode& symbol) { return is_kind(symbol, SymbolKind::data_size); }
inline bool holds_data_size(Sym s) { return holds_kind(s, SymbolKind::data_size); }

/// Stands for a number that is data. It never leaves the recorder, which puts the tensor in its place.
inline Sym data_number(size_t index) {
  return symbol_of({SymbolKind::data_number, static_cast<int32_t>(index), -1});
}
inline bool holds_data_number(Sym s) { return holds_kind(s, SymbolKind::data_number); }

// ---- the table

/// A symbol of a recording or a region, and where its value comes from. Of numbers that are computed from
/// others a row has the expression in the symbol's place.
struct SymbolRow {
  enum class From : uint8_t {
    input,     ///< size or stride `dim` of an input, divided by `divisor`
    number,    ///< a number of Python's, that of step `dim`
    data,      ///< size `dim` of what an operator gives: known when it has run
    computed,  ///< from the rows of the others
  };
  Sym symbol;
  From from = From::number;
  int input = -1;       ///< from an input: which of the tape's; in guards, which slot its tensor has
  int dim = 0;          ///< of a stride, kStrideBit more (support/nesting.h)
  int64_t hint = 0;     ///< what it was in the recorded run
  bool early = false;   ///< a number known once the guards held (guard::Phase): no guard can say what it is
  bool chosen = false;  ///< a size of an input that others choose (record::TensorInfo)
  int64_t divisor = 1;
  int found_by = -1,
      result = -1;  ///< from data: the step that finds it, and in which result (run/prepared.h)

  int64_t of(int64_t size) const { return size / divisor; }

  static SymbolRow of_input(Sym symbol, int input, int dim, int64_t hint, bool chosen) {
    SymbolRow row{symbol, From::input, input, dim, hint};
    row.chosen = chosen;
    return row;
  }
  static SymbolRow of_number(Sym symbol, int64_t hint, bool early) {
    return {symbol, From::number, -1, number_step(*symbol.node()), hint, early};
  }
  static SymbolRow of_data(Sym symbol, int64_t hint) {
    return {symbol, From::data, -1, symbol.node()->what.part, hint};
  }
  static SymbolRow of_computed(Sym expression, int64_t hint) {
    return {expression, From::computed, -1, 0, hint};
  }
};
using SymbolTable = std::vector<SymbolRow>;

// ---- the evaluator

inline Sym symbol_in(Sym s) { return s; }
inline Sym symbol_in(const SymbolRow& row) { return row.symbol; }

/// Where a symbol stands in a table, or in a list of symbols; its length: it does not.
template <class Table>
size_t place_in(const Table& table, const SymNode& symbol) {
  size_t place = 0;
  while (place < table.size() && symbol_in(table[place]).node() != &symbol) ++place;
  return place;
}

/// An expression over the symbols of a table, or of a list: `value(i)` is that of the one at place i,
/// `unknown(symbol)` that of one that does not stand there.
template <class Table, class ValueAt, class Unknown>
int64_t evaluate(Sym s, const Table& table, const ValueAt& value, const Unknown& unknown) {
  if (s.is_const()) return s.value();
  return evaluate(s, [&](const SymNode& n) -> int64_t {
    const size_t place = place_in(table, n);
    return place < table.size() ? value(place) : unknown(n);
  });
}

/// The value of `s`, all of whose symbols must stand in the table.
template <class Table, class ValueAt>
int64_t evaluate(Sym s, const Table& table, const ValueAt& value) {
  return evaluate(s, table, value, [](const SymNode& n) -> int64_t {
    throw Error(ErrorKind::Internal, "the symbol " + n.name + " has no value here");
  });
}

/// Expressions over a table, given the values that its symbols have in one call.
struct Evaluate {
  const SymbolTable& symbols;
  const std::vector<int64_t>& values;

  int64_t operator()(Sym s) const {
    return evaluate(s, symbols, [&](size_t place) { return values[place]; });
  }
  std::vector<int64_t> operator()(const Syms& xs) const {
    std::vector<int64_t> out;
    out.reserve(xs.size());
    for (Sym x : xs) out.push_back((*this)(x));
    return out;
  }
};

}  // namespace bolt

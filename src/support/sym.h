// support/sym.h
// Sizes, strides and index arithmetic: an integer that is either known now or a symbol known at each call.
//
// A Sym is a constant or a pointer to an interned expression node; equal expressions are the same node, so ==
// is structural equality and cheap. The constructors simplify on the way in (constants fold, sums and
// products are kept in one canonical order, x*1, x+0, (a*c)//c, (a*c)%c vanish), so most questions a pass
// asks have a plain answer. Every stage computes sizes with Sym; nothing may assume that a Sym is constant
// without asking. Symbols are non-negative (they are sizes, strides and loop variables); that is what the
// floor-division rules rest on.
//
// Nodes live as long as the process: they are few (bounded by the distinct sizes of the programs compiled)
// and shared by compile threads under one lock.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/export.h"
#include "support/short_vector.h"

namespace bolt {

enum class SymOp : uint8_t { Symbol, Add, Mul, FloorDiv, Mod, Min, Max };

/// What a symbol stands for; support/symbols.h makes them, and says what `of` and `part` count.
enum class SymbolKind : uint8_t {
  named,  ///< only whoever made it knows
  tape_size,
  int_number,
  float_number,
  data_size,
  data_number,
  atom,
  computed
};
struct SymbolId {
  SymbolKind kind = SymbolKind::named;
  int32_t of = -1, part = -1;
};

struct SymNode;

class BOLT_API Sym {
 public:
  Sym(int64_t value = 0) : value_(value) {}  // implicit: sizes are written as plain numbers
  /// The symbol of this name; `upper` (exclusive, 0 = unknown) helps x//c and x%c to vanish. Name, kind and
  /// bound together are its identity: d0 below 8 and d0 below 16 are two symbols.
  static Sym symbol(std::string_view name, int64_t upper = 0, SymbolId what = {});

  bool is_const() const { return node_ == nullptr; }
  bool is_const(int64_t v) const { return !node_ && value_ == v; }
  /// The value; an internal error when it is not known.
  int64_t value() const;
  int64_t value_or(int64_t fallback) const { return node_ ? fallback : value_; }
  const SymNode* node() const { return node_; }

  friend BOLT_API Sym operator+(Sym a, Sym b);
  friend BOLT_API Sym operator*(Sym a, Sym b);
  friend Sym operator-(Sym a, Sym b) { return a + b * Sym(-1); }
  friend bool operator==(Sym a, Sym b) { return a.node_ == b.node_ && a.value_ == b.value_; }
  friend bool operator!=(Sym a, Sym b) { return !(a == b); }
  Sym& operator+=(Sym b) { return *this = *this + b; }
  Sym& operator*=(Sym b) { return *this = *this * b; }

  std::string str() const;

 private:
  friend struct SymNode;
  friend Sym make_sym(const SymNode* node);
  const SymNode* node_ = nullptr;
  int64_t value_ = 0;  // 0 when node_ is set, so that == needs no case
};

/// Sizes or strides of a tensor: few have more dimensions.
using Syms = ShortVector<Sym, 4>;

struct SymNode {
  SymOp op;
  std::string name;  // Symbol only
  Syms args;         // Add and Mul: two or more, canonical order, the constant last; others: two
  uint64_t id;       // order of creation, unique
  int64_t upper;     // exclusive bound if known, else 0
  int64_t lower;     // inclusive bound if known, else INT64_MIN
  SymbolId what;     // Symbol only
};

BOLT_API Sym floordiv(Sym a, Sym b);
BOLT_API Sym mod(Sym a, Sym b);
BOLT_API Sym min(Sym a, Sym b);
BOLT_API Sym max(Sym a, Sym b);
inline Sym ceildiv(Sym a, Sym b) { return floordiv(a + b - Sym(1), b); }
BOLT_API Sym product(const Syms& xs);
BOLT_API bool all_known(const Syms& xs);
/// The value of each.
BOLT_API std::vector<int64_t> to_numbers(const Syms& xs);
/// Exclusive upper bound of a (0 = unknown).
BOLT_API int64_t upper_bound(Sym a);
/// Inclusive lower bound of a (INT64_MIN = unknown).
BOLT_API int64_t lower_bound(Sym a);
/// Is a certainly a multiple of c?
BOLT_API bool divisible(Sym a, int64_t c);
/// a as sum of coef*term + constant, where no term is itself a sum or has a constant factor.
struct SymTerm {
  int64_t coef;
  Sym term;
};
BOLT_API std::vector<SymTerm> sum_terms(Sym a, int64_t* constant);
/// Replace symbols: fn gives the replacement of each symbol (itself to keep it).
BOLT_API Sym substitute(Sym a, const std::function<Sym(Sym)>& fn);
BOLT_API void collect_symbols(Sym a, Syms* out);
/// Value with every symbol given by fn.
BOLT_API int64_t evaluate(Sym a, const std::function<int64_t(const SymNode&)>& fn);
/// Reads what str() writes: integers, names, + - * // % min(,) max(,) ( ). Advances `text`.
BOLT_API Sym parse_sym(std::string_view& text);

}  // namespace bolt

template <>
struct std::hash<bolt::Sym> {
  size_t operator()(bolt::Sym s) const noexcept {
    return s.is_const() ? std::hash<int64_t>()(s.value_or(0)) : std::hash<const void*>()(s.node());
  }
};

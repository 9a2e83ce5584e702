// support/symbols.cpp
// The names of the kinds, and back.
#include "support/symbols.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

namespace bolt {
namespace {

struct KindRow {
  SymbolKind kind;
  char letter;
  bool has_part;
  bool in_texts;  ///< other kinds live within one stage
  int64_t upper;
};
constexpr KindRow kKinds[] = {
    {SymbolKind::tape_size, 't', true, true, 0},     {SymbolKind::int_number, 'n', false, true, kNumberLimit},
    {SymbolKind::float_number, 'f', false, true, 0}, {SymbolKind::data_size, 'u', true, true, 0},
    {SymbolKind::data_number, 'd', false, false, 0}, {SymbolKind::atom, 'a', false, false, 0},
    {SymbolKind::computed, 'g', false, false, 0},
};

const KindRow& row_of(SymbolKind kind) {
  for (const KindRow& row : kKinds)
    if (row.kind == kind) return row;
  throw Error(ErrorKind::Internal, "a symbol of a kind that has no names");
}

/// Takes a number from the front.
std::optional<int32_t> take_number(std::string_view& text) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

/// What a name says that was given by this row.
std::optional<SymbolId> read(const KindRow& row, std::string_view name) {
  if (!row.in_texts || name.empty() || name[0] != row.letter) return std::nullopt;
  name.remove_prefix(1);
  SymbolId id{row.kind, -1, -1};
  auto take = [&](int32_t& into) {
    const std::optional<int32_t> number = take_number(name);
    into = number.value_or(-1);
    return number.has_value();
  };
  if (!take(id.of)) return std::nullopt;
  if (row.has_part) {
    if (name.empty() || name[0] != '_') return std::nullopt;
    name.remove_prefix(1);
    if (!take(id.part)) return std::nullopt;
  }
  return name.empty() ? std::optional(id) : std::nullopt;
}

}  // namespace

Sym symbol_of(SymbolId what, int64_t upper) {
  const KindRow& row = row_of(what.kind);
  std::string name = row.letter + std::to_string(what.of);
  if (row.has_part) name += "_" + std::to_string(what.part);
  return Sym::symbol(name, row.upper ? row.upper : upper, what);
}

Sym symbol_named(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (const std::optional<SymbolId> what = read(row, name)) return symbol_of(*what);
  return Sym::symbol(name);
}

Syms by_place(const Syms& symbols) {
  Syms out;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const SymNode& n = *symbols[i].node();
    const auto place = static_cast<int32_t>(i);
    out.push_back(n.what.kind == SymbolKind::named
                      ? Sym::symbol("s" + std::to_string(i), n.upper)
                      : symbol_of({n.what.kind, place, n.what.part < 0 ? -1 : 0}, n.upper));
  }
  return out;
}

Sym renamed(Sym s, const Syms& from, const Syms& to) {
  return substitute(s, [&](Sym symbol) {
    const size_t place = place_in(from, *symbol.node());
    return place < from.size() ? to[place] : symbol;
  });
}

bool holds_kind(Sym s, SymbolKind kind) {
  if (s.is_const()) return false;
  const SymNode& n = *s.node();
  if (n.op == SymOp::Symbol) return n.what.kind == kind;
  return std::any_of(n.args.begin(), n.args.end(), [&](Sym arg) { return holds_kind(arg, kind); });
}

}  // namespace bolt

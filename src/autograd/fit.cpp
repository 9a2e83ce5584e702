// autograd/fit.cpp
#include "autograd/fit.h"

#include <algorithm>
#include <cstdlib>

#include "support/symbols.h"

namespace bolt::autograd {
namespace {

constexpr size_t kMostFactors = 12;  ///< of the expressions found so far, those that are multiplied
constexpr int64_t kMostDivisor = 64;

Observed times(const Observed& a, const Observed& b) {
  Observed out(a.size());
  std::ranges::transform(a, b, out.begin(), std::multiplies<>());
  return out;
}

struct Line {
  int64_t factor = 0, more = 0;
  Sym of(Sym x) const { return x * Sym(factor) + Sym(more); }
};

/// `wanted == factor * x + more` in all trials, of an x that differs.
std::optional<Line> line_through(const Observed& x, const Observed& wanted) {
  const auto other = std::ranges::find_if(x, [&](int64_t value) { return value != x[0]; });
  if (other == x.end()) return std::nullopt;
  const int64_t up = wanted[other - x.begin()] - wanted[0], along = *other - x[0];
  if (up == 0 || up % along != 0) return std::nullopt;
  const Line line{up / along, wanted[0] - up / along * x[0]};
  for (size_t i = 0; i < x.size(); ++i)
    if (wanted[i] != line.factor * x[i] + line.more) return std::nullopt;
  return line;
}

std::optional<Sym> line(Sym sym, const Observed& x, const Observed& wanted) {
  const auto found = line_through(x, wanted);
  return found ? std::optional(found->of(sym)) : std::nullopt;
}

int64_t down(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

}  // namespace

void Fit::add_symbol(Sym symbol, const Observed& values) {
  if (is_float_symbol(*symbol.node())) {
    floats_.emplace(values, symbol);
    return;
  }
  add_atom(symbol, values);
  ++symbols_;
}

void Fit::add_atom(Sym sym, const Observed& values) {
  known_.emplace(values, sym);
  atoms_.push_back({sym, values});
}

std::optional<Sym> Fit::find(const Observed& values, bool is_float) {
  if (std::ranges::adjacent_find(values, std::not_equal_to<>()) == values.end()) return Sym(values[0]);
  if (is_float) {
    const auto at = floats_.find(values);
    return at == floats_.end() ? std::nullopt : std::optional(at->second);
  }
  if (const auto at = known_.find(values); at != known_.end()) return at->second;
  const std::optional<Sym> found = search(values);
  if (found)
    add_atom(*found, values);
  else
    known_.emplace(values, std::nullopt);
  return found;
}

std::optional<Sym> Fit::search(const Observed& wanted) const {
  for (const Atom& atom : atoms_)
    if (const auto found = line(atom.sym, atom.values, wanted)) return found;
  if (const auto found = of_products(wanted, true)) return found;
  if (const auto found = sum(wanted)) return found;
  if (const auto found = sum_of_symbols(wanted)) return found;
  if (const auto found = of_products(wanted, false)) return found;
  if (const auto found = quotient(wanted)) return found;
  return remainder(wanted);
}

/// Of two expressions, or of one and what is left of a number when another is taken off.
std::optional<Sym> Fit::sum(const Observed& wanted) const {
  for (const Atom& atom : atoms_)
    for (const int64_t sign : {1, -1}) {
      Observed rest = wanted;
      for (size_t i = 0; i < rest.size(); ++i) rest[i] -= sign * atom.values[i];
      for (const Atom& second : atoms_)
        if (const auto found = line(second.sym, second.values, rest)) return *found + atom.sym * Sym(sign);
    }
  return std::nullopt;
}

/// Of any number of symbols, as the rows of what is joined are: how much each adds shows where it differs
/// alone.
std::optional<Sym> Fit::sum_of_symbols(const Observed& wanted) const {
  Sym found;
  Observed rest = wanted;
  for (size_t i = 0; i < symbols_; ++i) {
    const Observed& x = atoms_[i].values;
    auto differs_alone = [&](size_t t) {
      for (size_t k = 0; k < symbols_; ++k)
        if ((atoms_[k].values[t] != atoms_[k].values[0]) != (k == i)) return false;
      return true;
    };
    size_t trial = 1;
    while (trial < x.size() && !differs_alone(trial)) ++trial;
    if (trial == x.size()) return std::nullopt;
    const int64_t up = wanted[trial] - wanted[0], along = x[trial] - x[0];
    if (up % along != 0) return std::nullopt;
    for (size_t t = 0; t < x.size(); ++t) rest[t] -= up / along * x[t];
    found += atoms_[i].sym * Sym(up / along);
  }
  const bool holds = std::ranges::adjacent_find(rest, std::not_equal_to<>()) == rest.end();
  return holds ? std::optional(found + Sym(rest[0])) : std::nullopt;
}

/// Of two or three: alone, or with a number more. Most numbers of several sizes are how many elements there
/// are, and trials are too few to tell such a product from any sum.
std::optional<Sym> Fit::of_products(const Observed& wanted, bool alone) const {
  auto is = [&](Sym sym, const Observed& x) -> std::optional<Sym> {
    const auto found = line_through(x, wanted);
    return found && (!alone || found->more == 0) ? std::optional(found->of(sym)) : std::nullopt;
  };
  const size_t few = std::min(atoms_.size(), kMostFactors);
  for (size_t i = 0; i < few; ++i)
    for (size_t k = i; k < few; ++k) {
      const Observed two = times(atoms_[i].values, atoms_[k].values);
      const Sym sym = atoms_[i].sym * atoms_[k].sym;
      if (const auto found = is(sym, two)) return found;
      for (size_t m = k; m < few; ++m)
        if (const auto found = is(sym * atoms_[m].sym, times(two, atoms_[m].values))) return found;
    }
  return std::nullopt;
}

/// As many times (atom + more) // divisor as it takes, and a number more: what is made longer again after a
/// convolution with a stride. Of several, the one to which least is added: trials are few, and what
/// convolutions and patches make is mostly such a quotient and nothing more.
std::optional<Sym> Fit::quotient(const Observed& wanted) const {
  std::optional<Sym> best;
  int64_t least = 0;
  for (size_t i = 0; i < std::min(atoms_.size(), kMostFactors); ++i)
    for (int64_t divisor = 2; divisor <= kMostDivisor; ++divisor)
      for (int64_t more = 0; more < divisor; ++more) {
        Observed x = atoms_[i].values;
        for (int64_t& value : x) value = down(value + more, divisor);
        const auto found = line_through(x, wanted);
        if (!found || (best && std::abs(found->more) >= least)) continue;
        best = found->of(floordiv(atoms_[i].sym + Sym(more), divisor)), least = std::abs(found->more);
        if (least == 0) return best;
      }
  return best;
}

/// What a size lacks of the next multiple.
std::optional<Sym> Fit::remainder(const Observed& wanted) const {
  for (size_t i = 0; i < symbols_; ++i)
    for (const int64_t sign : {1, -1}) {
      Observed whole = wanted;
      for (size_t t = 0; t < whole.size(); ++t) whole[t] += sign * atoms_[i].values[t];
      if (const auto found = quotient(whole)) return *found - atoms_[i].sym * Sym(sign);
    }
  return std::nullopt;
}

}  // namespace bolt::autograd

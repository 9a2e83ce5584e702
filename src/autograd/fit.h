// autograd/fit.h
// A number in several trials -> the expression over the symbols that it is.
//
// What ATen computes from sizes is simple: a size, a sum, a product, a quotient by a number. An expression is
// taken that holds for all trials, the simplest first, and made of expressions that were found before: the
// number of rows of a gradient is the size of some tensor already. It is a guess. Who relies on it compares
// it with what ATen does for the sizes of a call (follow.h).
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "support/sym.h"

namespace bolt::autograd {

/// By trial.
using Observed = std::vector<int64_t>;

class Fit {
 public:
  /// The values of a symbol in the trials.
  void add_symbol(Sym symbol, const Observed& values);
  /// Of a float (its bits) only the symbol that it is.
  std::optional<Sym> find(const Observed& values, bool is_float);

 private:
  struct Atom {
    Sym sym;
    Observed values;
  };
  std::optional<Sym> search(const Observed& wanted) const;
  std::optional<Sym> sum(const Observed& wanted) const;
  std::optional<Sym> sum_of_symbols(const Observed& wanted) const;
  std::optional<Sym> of_products(const Observed& wanted, bool alone) const;
  std::optional<Sym> quotient(const Observed& wanted) const;
  std::optional<Sym> remainder(const Observed& wanted) const;
  void add_atom(Sym sym, const Observed& values);

  std::vector<Atom> atoms_;  ///< the symbols first
  size_t symbols_ = 0;
  std::map<Observed, Sym> floats_;
  std::map<Observed, std::optional<Sym>> known_;
};

}  // namespace bolt::autograd

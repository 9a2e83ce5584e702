// run/evaluate.h
// Symbols -> the values of one call.
#pragma once

#include <cstdint>
#include <vector>

#include "lower/sizes.h"
#include "support/error.h"

namespace bolt::run {

using Ints = std::vector<int64_t>;

struct Evaluate {
  const std::vector<lower::SizeSymbol>& symbols;
  const Ints& values;  ///< of the symbols

  int64_t operator()(Sym s) const {
    if (s.is_const()) return s.value();
    return evaluate(s, [&](const SymNode& n) {
      for (size_t i = 0; i < symbols.size(); ++i)
        if (symbols[i].symbol.node() == &n) return values[i];
      throw Error(ErrorKind::Internal, "the size " + n.name + " is not known when the program runs");
    });
  }
  Ints operator()(const Syms& xs) const {
    Ints out;
    out.reserve(xs.size());
    for (Sym x : xs) out.push_back((*this)(x));
    return out;
  }
};

}  // namespace bolt::run

// loops/normalise.h
// Kernel -> the same kernel with dimensions of size 1 dropped and neighbours that always run together merged:
// a contiguous tensor becomes one long row whatever its rank. Every code generator asks for it before it
// makes a schedule. Content that does not change the code (names) is normalised too.
#pragma once

#include "loops/kernel.h"

namespace bolt::loops {

BOLT_API Kernel normalise(const Kernel& kernel);

/// The kernel with its symbols named by their places: kernels that differ in the names alone become one.
BOLT_API Kernel with_symbols_by_place(const Kernel& kernel);

/// index = coef * dim + rest, when it is so.
struct LinearIn {
  bool linear = false;
  Sym coef, rest;
};
BOLT_API LinearIn linear_in(Sym index, Sym dim);
BOLT_API bool mentions(Sym index, Sym symbol);

}  // namespace bolt::loops

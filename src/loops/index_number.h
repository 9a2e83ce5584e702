// loops/index_number.h
// A graph value -> the index arithmetic that it is: an iota under a few additions, products with numbers,
// divisions by numbers, and smaller or larger of two.
//
// No such number is ever stored or checked in a kernel where it can be seen to stay inside: it is part of an
// address to whoever reads at it.
#pragma once

#include <optional>

#include "loops/views.h"

namespace bolt::loops {

/// The whole number that `v` holds at `at`; nothing where it is computed otherwise, or by a long chain.
std::optional<Sym> index_number(const graph::Value* v, const Index& at);

}  // namespace bolt::loops

// run/evaluate.h
// Symbols -> the values of one call: the evaluator of support/symbols.h, under the names that run/ has for
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "support/symbols.h"

namespace bolt::run {

using bolt::Evaluate;
using Ints = std::vector<int64_t>;

}  // namespace bolt::run

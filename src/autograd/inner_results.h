// autograd/inner_results.h
// A backward part with inner results (Inner) -> the same for one way in which passes come to each of them.
//
// The whole part adds what comes from outside to what comes through other results. As a rule nothing comes
// from outside (`through`). Or somebody has looked at the sum, and perhaps changed it, before the pass goes
// on: then that is taken, and what comes through the others is not computed (`whole`).
#pragma once

#include <vector>

#include "autograd/joint.h"

namespace bolt::autograd {

enum class Arrives : char { through, both, whole };

/// `ways`: by inner result. The inputs stay as they are, of which the last ones are `tangents` tangents. Of
/// an inner result whose gradient comes through others alone, nobody reads it.
record::Tape with_inner(const record::Tape& backward, size_t tangents, const std::vector<Inner>& inner,
                        const std::vector<Arrives>& ways);

}  // namespace bolt::autograd

// compile.h
// The whole road, from a recorded run to something that runs: see compile.cpp.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "run/found_sizes.h"
#include "run/recorded.h"
#include "run/runnable.h"

namespace bolt {

using run::EndsAtFoundSizes;
using run::EndsBeforeBackward;

/// Another compiler than ours: makes what runs of the tape, the numbers in whose arguments are expressions
/// over these symbols.
using Other = std::function<std::shared_ptr<run::Runnable>(run::Recorded&, const SymbolTable&)>;

/// Never throws for what cannot be compiled (but for the two above): the region then replays its tape and
/// says why. Internal failures are thrown. Needs no GIL.
std::shared_ptr<run::Runnable> compile(run::Recorded recorded, const Other& other = {});

}  // namespace bolt

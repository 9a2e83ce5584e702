// support/parallel.h
// Compiling on more than one thread.
#pragma once

#include <cstddef>
#include <functional>

#include "support/export.h"

namespace bolt {

/// TORCHBOLT_THREADS, and no more than there are cores; at least 1.
BOLT_API size_t compile_threads();

/// work(0) ... work(count - 1), on this thread and others. When all are done, the error of the first that had
/// one is thrown.
BOLT_API void in_parallel(size_t count, const std::function<void(size_t)>& work);

}  // namespace bolt

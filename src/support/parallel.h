// support/parallel.h
// Compiling on more than one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <system_error>

#include "support/export.h"

namespace bolt {

/// TORCHBOLT_THREADS, and no more than there are cores; at least 1.
BOLT_API size_t compile_threads();

/// work(0) ... work(count - 1), on this thread and others. When all are done, the error of the first that had
/// one is thrown.
BOLT_API void in_parallel(size_t count, const std::function<void(size_t)>& work);

/// work() on a thread of its own while the caller goes on, or, where the process may have no more threads,
/// before it does. Whoever lets go of what is returned waits.
template <class Work>
auto started(Work work) -> std::future<decltype(work())> {
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    task();
    return task.get_future();
  }
}

}  // namespace bolt

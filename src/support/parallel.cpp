// support/parallel.cpp
#include "support/parallel.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "support/knobs.h"

namespace bolt {

size_t compile_threads() {
  const auto wanted = static_cast<size_t>(std::max<int64_t>(knob_int("TORCHBOLT_THREADS"), 1));
  return std::min<size_t>(wanted, std::max(std::thread::hardware_concurrency(), 1u));
}

void in_parallel(size_t count, const std::function<void(size_t)>& work) {
  const size_t threads = std::min(compile_threads(), count);
  std::vector<std::exception_ptr> errors(count);
  auto share = [&](size_t first) {
    for (size_t i = first; i < count; i += threads) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> pool;  // joined also where anything is thrown here
  pool.reserve(threads);
  size_t started = std::min<size_t>(threads, 1);
  try {
    for (; started < threads; ++started) pool.emplace_back(share, started);
  } catch (const std::system_error&) {  // the process may have no more threads
  }
  if (count > 0) share(0);
  for (; started < threads; ++started) share(started);
  pool.clear();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace bolt

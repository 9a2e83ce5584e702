// support/background.h
// Compilations that go on while the program runs eagerly: one C++ thread, started with the first, and a
// queue.
#pragma once

#include <functional>

namespace bolt {

/// Runs `job` later, without the GIL. It must not throw.
void run_in_background(std::function<void()> job);
/// Returns when the queue is empty and nothing runs.
void wait_for_background();
/// Empties the queue and returns when nothing runs: the process ends, and a compilation must not meet the
/// destructors of static objects.
void stop_background();

}  // namespace bolt

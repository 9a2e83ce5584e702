// program/background.h
// Compilations that go on while the program runs eagerly: one C++ thread, started with the first, and a
// queue.
#pragma once

#include <functional>

namespace bolt::program {

/// Runs `job` later, without the GIL. What it throws is dropped after being counted as a fall-back.
void run_in_background(std::function<void()> job);
/// Returns when the queue is empty and nothing runs.
void wait_for_background();

}  // namespace bolt::program

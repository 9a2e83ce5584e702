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
/// Empties the queue for good and returns when nothing runs: the process ends, and a compilation must neither
/// meet the destructors of static objects nor let go of Python's objects where there is no Python any more.
void stop_background();

/// A compilation on the thread that needs it. One that goes on is waited for when the process ends, and none
/// begins any more.
class CompilationHere {
 public:
  CompilationHere();
  ~CompilationHere();
  CompilationHere(const CompilationHere&) = delete;
  bool may_begin() const { return may_begin_; }

 private:
  bool may_begin_;
};

}  // namespace bolt

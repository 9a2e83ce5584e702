// python/gil.h
// Python's lock, taken and given back by threads that the interpreter may end under.
//
// When the process ends, Python ends every thread that asks for its lock and is not the one that ends it: by
// pthread_exit(), which unwinds the thread's stack as an exception does (up to 3.13). In a destructor, which
// the lock is nearly always taken back in, that ends the whole process: "terminate called without an active
// exception". And what is destroyed on the way lets go of Python's objects without the lock. So such a thread
// goes no further: it waits until the process is gone, which is what Python itself has it do from 3.14 on.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace bolt {

[[noreturn]] inline void wait_for_end_of_process() {
  for (;;) pause();
}

/// Runs `take`, which asks for the lock.
template <class Take>
void ask_for_lock(Take take) {
  try {
    take();
  } catch (const abi::__forced_unwind&) {
    wait_for_end_of_process();
  }
}

/// Holds the lock, whether the thread has it already or not, or has never had it.
class WithGil {
 public:
  WithGil() {
    ask_for_lock([&] { state_ = PyGILState_Ensure(); });
  }
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;

 private:
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
};

/// The thread, which has the lock, is without it.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  ~WithoutGil() {
    ask_for_lock([&] { PyEval_RestoreThread(thread_); });
  }
  WithoutGil(const WithoutGil&) = delete;

 private:
  PyThreadState* thread_;
};

}  // namespace bolt

// interp/thread.h
// What the interpreter keeps per thread: its frame stack, the rules in force, and two limits.
#pragma once

#include "interp/frame.h"

namespace bolt::interp {

struct Thread {
  Frame* frame = nullptr;          ///< innermost frame of ours
  Semantics* semantics = nullptr;  ///< of the innermost run_frame
  PySendResult sent = PYGEN_NEXT;  ///< how the generator body that ended last did: yielded, returned, raised
  int budget = 0;                  ///< jumps and calls until pending work is looked at again
  char* stack_limit = nullptr;     ///< lowest address our C recursion may reach
};

Thread& this_thread();

/// After this many backward jumps and calls we let CPython handle what is pending.
constexpr int kPendingInterval = 64;

/// Signals, pending calls, other threads' wish for the GIL, asynchronous exceptions, scheduled garbage
/// collection: all that CPython's loop does when its eval breaker is set. -1 with an exception set
/// (KeyboardInterrupt, ...).
int handle_pending(Thread& thread);

/// -1 with RecursionError set if the C stack is nearly used up.
int check_c_stack(Thread& thread);

/// The files that the code of helpers says it is from: one runs what an instruction does, one has CPython do
/// what is due between two (signal handlers, say).
constexpr const char* kHelperFile = "<torchbolt>";
constexpr const char* kPendingFile = "<torchbolt: pending work>";
/// A function that does something for the interpreter on the way, from its source; no user's code.
PyObject* make_helper(const char* source, const char* file = kHelperFile);

}  // namespace bolt::interp

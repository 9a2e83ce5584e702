// interp/run.h
// The two compiled loops, and the ways into them that only the interpreter itself uses.
#pragma once

#include "interp/semantics.h"
#include "interp/thread.h"

namespace bolt::interp {

/// loop.h, instantiated in loop_plain.cpp and loop_observed.cpp (apart, so that they compile in parallel).
PyObject* run_loop_plain(Frame* first, PlainSemantics& semantics, Thread& thread, bool throwing);
PyObject* run_loop_observed(Frame* first, Semantics& semantics, Thread& thread, bool throwing);
bool enter_plain(PlainSemantics& semantics, PyThreadState* tstate, Thread& thread, Frame* frame);
bool enter_observed(Semantics& semantics, PyThreadState* tstate, Thread& thread, Frame* frame);

/// run_frame; `throwing`: an exception is set and is raised in the frame where it stands.
PyObject* run_frame(Frame& frame, Semantics& semantics, bool throwing);

}  // namespace bolt::interp

// interp/loop_observed.cpp
// The loop for an observing Semantics: calls are virtual, and the frame is in order before each.

#include "interp/loop.h"
#include "interp/run.h"

namespace bolt::interp {

PyObject* run_loop_observed(Frame* first, Semantics& semantics, Thread& thread, bool throwing) {
  return run_loop<Semantics>(first, semantics, thread, throwing);
}

bool enter_observed(Semantics& semantics, PyThreadState* tstate, Thread& thread, Frame* frame) {
  return enter(semantics, tstate, thread, frame);
}

}  // namespace bolt::interp

// interp/loop_plain.cpp
// The loop for plain execution: calls to the Semantics are direct.

#include "interp/loop.h"
#include "interp/run.h"

namespace bolt::interp {

PyObject* run_loop_plain(Frame* first, PlainSemantics& semantics, Thread& thread, bool throwing) {
  return run_loop<PlainSemantics>(first, semantics, thread, throwing);
}

bool enter_plain(PlainSemantics& semantics, PyThreadState* tstate, Thread& thread, Frame* frame) {
  return enter(semantics, tstate, thread, frame);
}

}  // namespace bolt::interp

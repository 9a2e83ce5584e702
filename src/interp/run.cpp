// src/interp/run.cpp
// run_frame: links a chain of frames into the thread and runs it to its end.

#include "interp/run.h"

#include <utility>
#include <vector>

#include "interp/call.h"

namespace bolt::interp {

namespace {

/// The frames from `innermost` down to its entry frame, oldest first.
std::vector<Frame*> chain_of(Frame* innermost) {
  std::vector<Frame*> chain{innermost};
  while (chain.back()->return_to == ReturnTo::caller && chain.back()->back)
    chain.push_back(chain.back()->back);
  return {chain.rbegin(), chain.rend()};
}

bool enter_any(Semantics& semantics, PyThreadState* tstate, Thread& thread, Frame* frame) {
  if (semantics.is_plain())
    return enter_plain(static_cast<PlainSemantics&>(semantics), tstate, thread, frame);
  return enter_observed(semantics, tstate, thread, frame);
}

void leave_entered(PyThreadState* tstate, Thread& thread, Frame* frame) {
  uncount_python_call(tstate);
  current_raw(tstate) = frame->raw->previous;
  thread.frame = frame->back;
}

/// Enters the frames of a chain in order; on failure leaves the entered ones again and drops all of them.
bool enter_chain(Frame* innermost, Semantics& semantics, PyThreadState* tstate, Thread& thread) {
  if (innermost->return_to == ReturnTo::entry) {
    innermost->back = thread.frame;
    if (check_c_stack(thread) == 0 && enter_any(semantics, tstate, thread, innermost)) return true;
    discard_frame(innermost);
    return false;
  }
  std::vector<Frame*> chain = chain_of(innermost);
  chain.front()->back = thread.frame;
  chain.front()->return_to = ReturnTo::entry;
  size_t entered = 0;
  bool ok = check_c_stack(thread) == 0;
  while (ok && entered < chain.size()) {
    ok = enter_any(semantics, tstate, thread, chain[entered]);
    entered += ok;
  }
  if (ok) return true;
  while (entered > 0) leave_entered(tstate, thread, chain[--entered]);
  for (Frame* frame : chain) discard_frame(frame);
  return false;
}

}  // namespace

PyObject* run_frame(Frame& frame, Semantics& semantics, bool throwing) {
  Thread& thread = this_thread();
  PyThreadState* tstate = thread_state();
  if (!enter_chain(&frame, semantics, tstate, thread)) return nullptr;
  Semantics* outer = std::exchange(thread.semantics, &semantics);
  PyObject* result = semantics.is_plain()
                         ? run_loop_plain(&frame, static_cast<PlainSemantics&>(semantics), thread, throwing)
                         : run_loop_observed(&frame, semantics, thread, throwing);
  thread.semantics = outer;
  return result;
}

PyObject* run_frame(Frame& frame, Semantics& semantics) { return run_frame(frame, semantics, false); }

}  // namespace bolt::interp

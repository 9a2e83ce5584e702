// interp/run.cpp
// run_frame: links a chain of frames into the thread and runs it to its end.

#include "interp/run.h"

#include <optional>
#include <utility>
#include <vector>

#include "interp/generator.h"

namespace bolt::interp {

namespace {

/// The frames from `innermost` down to its entry frame, oldest first.
std::vector<Frame*> chain_of(Frame* innermost) {
  std::vector<Frame*> chain{innermost};
  while (chain.back()->return_to != ReturnTo::entry && chain.back()->back)
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
  if (frame->generator) leave_resumption(tstate, frame->generator);
  current_raw(tstate) = frame->raw->previous;
  thread.frame = frame->back;
}

/// Enters the frames of a chain in order; on failure leaves the entered ones again and drops all of them.
bool enter_chain(Frame* innermost, Semantics& semantics, PyThreadState* tstate, Thread& thread) {
  if (innermost->return_to == ReturnTo::entry) {
    innermost->back = thread.frame;
    if (check_c_stack(thread) == 0 && enter_any(semantics, tstate, thread, innermost)) return true;
    thread.sent = PYGEN_ERROR;
    discard_run(innermost);
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
  discard_run(innermost);
  return false;
}

/// The exception that a run handles is its own: a run that is suspended takes it along and leaves its
/// caller's in force. A generator's body has a place for it in the generator.
class Handled {
 public:
  Handled(PyThreadState* thread, Frame& bottom)
      : thread_(thread), item_{std::exchange(bottom.handled, nullptr), thread->exc_info} {
    thread_->exc_info = &item_;
  }
  ~Handled() {
    thread_->exc_info = item_.previous_item;
    Py_XDECREF(item_.exc_value);
  }
  Handled(const Handled&) = delete;
  void leave_with(Frame& bottom) {
    if (item_.exc_value != Py_None) bottom.handled = std::exchange(item_.exc_value, nullptr);
  }

 private:
  PyThreadState* thread_;
  _PyErr_StackItem item_;
};

/// The stacks of the generators in a run that stands still are in motion no more: whoever ends one finds in
/// its record what it holds.
void come_to_rest(Frame& innermost) {
  for (Frame* frame : chain_of(&innermost))
    if (frame->generator) frame->raw->stacktop = static_cast<int>(frame->sp - frame->raw->localsplus);
}

}  // namespace

std::atomic<int64_t>& stops() {
  static std::atomic<int64_t> count{0};
  return count;
}

PyObject* run_frame(Frame& frame, Semantics& semantics, bool throwing) {
  Thread& thread = this_thread();
  PyThreadState* tstate = thread_state();
  Frame* bottom = bottom_of(frame);
  std::optional<Handled> handled;
  if (!bottom->generator) handled.emplace(tstate, *bottom);
  if (!enter_chain(&frame, semantics, tstate, thread)) return nullptr;
  Semantics* outer = std::exchange(thread.semantics, &semantics);
  PyObject* result = semantics.is_plain()
                         ? run_loop_plain(&frame, static_cast<PlainSemantics&>(semantics), thread, throwing)
                         : run_loop_observed(&frame, semantics, thread, throwing);
  thread.semantics = outer;
  if (semantics.suspended && !result && !PyErr_Occurred()) {
    come_to_rest(*semantics.suspended);
    if (handled) {
      handled->leave_with(*bottom_of(*semantics.suspended));
      stops() += semantics.counts_stops;
    }
  }
  return result;
}

PyObject* run_frame(Frame& frame, Semantics& semantics) { return run_frame(frame, semantics, false); }

// What the program does with GeneratorExit is its own business; nobody waits for its result.
void close_run(Frame& innermost) {
  PyObject* reason = take_raised();
  PlainSemantics plain;
  PyErr_SetNone(PyExc_GeneratorExit);
  Py_XDECREF(run_frame(innermost, plain, true));
  PyErr_Clear();
  set_raised(reason);
}

}  // namespace bolt::interp

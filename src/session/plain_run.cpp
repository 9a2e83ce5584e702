// session/plain_run.cpp
#include "session/plain_run.h"

#include <optional>

#include "interp/run.h"
#include "record/recorder.h"

namespace bolt::session {
namespace {

/// Sees whether a run meets an operator, and keeps none.
struct Witness {
  record::Recorder recorder;
  record::Recorder::Scope scope{recorder};
  Witness() { recorder.stop(false); }
};

/// As far as the first operator, led by `run`, given the interpreter's orders.
template <class Run>
Outcome run_to_operator(Run run) {
  observe::PlainSteps steps(observe::PlainSteps::kToAnOperator);
  Witness witness;
  witness.recorder.wakes = &steps.watch_instructions;
  PyObject* result = run(steps);
  return {result, steps.suspended, witness.recorder.met_operator()};
}

/// What the site says of runs that no entry fits: they are led by `run`, given the interpreter's orders. One
/// that meets an operator after all has the next one recorded.
template <class Run>
Outcome run_as_before(Site& site, Run run) {
  if (site.plain_instructions == observe::PlainSteps::kToAnOperator) return run_to_operator(run);
  observe::PlainSteps steps(site.plain_instructions, &site.plain_end);
  // Up to the region's end the same instructions run as before; what comes after it is not known.
  std::optional<Witness> witness;
  if (site.plain_instructions == observe::PlainSteps::kToTheEnd) witness.emplace();
  PyObject* result = run(steps);
  if (witness && witness->recorder.met_operator()) site.plain_instructions = site.misses = 0;
  // A recording takes some of C's loops over Python apart: where there was one, the number is of no use.
  const bool raises = site.plain_end.key.empty() && site.plain_instructions != observe::PlainSteps::kToTheEnd;
  if (steps.elsewhere || (raises && result)) {
    site.plain_instructions = site.misses = 0;
    site.never_plain = true;
  }
  return {result, steps.suspended};
}

/// Tells this thread's tracer of lines and returns in frames that were there before it was: CPython's own
/// loop would. What they call is CPython's to run, as long as there is a tracer.
class TracedSteps final : public interp::Semantics {
 public:
  TracedSteps() { watch_instructions = true; }
  PyRef raised;  ///< by the tracer, which is why the run stands still

  bool before_instruction(interp::Frame& frame) override {
    PyThreadState* thread = PyThreadState_Get();
    if (!thread_is_traced(thread)) return false;
    const int line = frame.lineno();
    const bool new_line = frame_ == &frame && line_ != line;  // a caller is in the middle of one
    frame_ = &frame, line_ = line;
    if (thread->tracing) return true;
    if (new_line && !tell(thread, PyTrace_LINE, Py_None)) return false;
    PyObject* returned = returned_by(frame);
    return !returned || tell(thread, PyTrace_RETURN, returned);
  }

 private:
  /// What the instruction in progress returns; null: it does not.
  static PyObject* returned_by(const interp::Frame& frame) {
    const interp::Instr& instr = frame.instr();
#if BOLT_PY312
    if (instr.op == interp::op::RETURN_CONST) return PyTuple_GET_ITEM(frame.code()->co_consts, instr.arg);
#endif
    return instr.op == interp::op::RETURN_VALUE ? frame.peek(1) : nullptr;
  }

  bool tell(PyThreadState* thread, int what, PyObject* value) {
    const PyRef frame = PyRef::steal(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(thread)));
    const PyRef tracer = PyRef::share(thread->c_traceobj);
    PyThreadState_EnterTracing(thread);
    const int status =
        thread->c_tracefunc(tracer.get(), reinterpret_cast<PyFrameObject*>(frame.get()), what, value);
    PyThreadState_LeaveTracing(thread);
    if (status < 0) raised = PyRef::steal(take_raised());
    return status >= 0;
  }

  const interp::Frame* frame_ = nullptr;
  int line_ = -1;
};

PyObject* call_under(Callable* self, const Given& given, observe::PlainSteps& steps) {
  return interp::call_function(self->target, given.args(), given.nargs, given.kwnames, steps);
}

}  // namespace

PyObject* run_plainly(interp::Frame* innermost, bool signalled) {
  static interp::PlainSemantics plain;
  return interp::run_frame(*innermost, plain, signalled);
}

Outcome run_traced(interp::Frame* innermost) {
  TracedSteps steps;
  PyObject* result = interp::run_frame(*innermost, steps);
  if (!steps.raised) return {result, steps.suspended};
  set_raised(steps.raised.release());
  return {run_plainly(steps.suspended, true)};
}

Outcome step(interp::Frame* innermost, int64_t instructions) {
  observe::PlainSteps steps(instructions);
  PyObject* result = interp::run_frame(*innermost, steps);
  return {result, steps.suspended};
}

Outcome step_to_operator(interp::Frame* innermost) {
  return run_to_operator([&](observe::PlainSteps& steps) { return interp::run_frame(*innermost, steps); });
}

Outcome step_into(Callable* self, const Given& given, int64_t instructions) {
  observe::PlainSteps steps(instructions);
  PyObject* result = call_under(self, given, steps);
  return {result, steps.suspended};
}

Outcome step_at(Site& site, interp::Frame* innermost) {
  return run_as_before(site,
                       [&](observe::PlainSteps& steps) { return interp::run_frame(*innermost, steps); });
}

Outcome step_into(Callable* self, Site& site, const Given& given) {
  return run_as_before(site, [&](observe::PlainSteps& steps) { return call_under(self, given, steps); });
}

int64_t length_of(const Site& site) {
  int64_t length = site.entries.empty() ? 0 : site.entries.front()->instructions;
  return length > 0 ? length : observe::PlainSteps::kToTheEnd;
}

}  // namespace bolt::session

// interp/loop.h
// Frame -> its result: the dispatch loop.
//
// One jump per instruction through a table of labels made from the version's opcode table; a handler that is
// missing does not compile. A Python-to-Python call switches the registers to the callee's frame and goes on
// in the same loop; only calls through native code recurse on the C stack.
//
// The loop ends when the frame that run_frame entered with (return_to == entry) ends. On an exception the
// frames are left one by one until a handler is found; each adds its traceback entry.
//
// A Semantics that watches instructions may also stop the loop between two of them: the frames are then taken
// off the thread, whole, and `suspended` names the innermost. run_frame goes on from there.
#pragma once

#include "interp/async_generator.h"
#include "interp/errors.h"
#include "interp/generator.h"
#include "interp/machine.h"
#include "interp/opcodes/all.h"

namespace bolt::interp {

/// Links `frame` as the innermost one and counts it against the recursion limit. False with RecursionError
/// set.
template <class S>
bool enter(S& semantics, PyThreadState* tstate, Thread& thread, Frame* frame) {
  if (!count_python_call(tstate)) [[unlikely]]
    return false;
  RawFrame* raw = frame->raw;
  raw->previous = current_raw(tstate);
  raw->stacktop = -1;  // a generator's record: the garbage collector must not look at a stack in motion
  current_raw(tstate) = raw;
  thread.frame = frame;
  if (frame->generator) begin_resumption(tstate, frame->generator);
  if constexpr (!Machine<S>::plain) semantics.enter_frame(*frame);
  return true;
}

/// Unlinks the innermost frame and releases it. Its result: `result` (stolen), or what replaces it.
template <class S>
PyObject* leave(Machine<S>& m, Frame* frame, PyObject* result) {
  frame->sp = m.sp;
  if constexpr (!Machine<S>::plain) m.s.leave_frame(*frame, result);
  uncount_python_call(m.tstate);
  current_raw(m.tstate) = frame->raw->previous;
  m.thread.frame = frame->back;
  if (frame->instance) result = instance_result(*frame, result);
  if (frame->generator) {
    frame->raw->stacktop = static_cast<int>(frame->sp - frame->raw->localsplus);
    frame->raw->previous = nullptr;
    leave_resumption(m.tstate, frame->generator);
    PySendResult sent = end_resumption(frame->generator, result);
    if (frame->awaitable) sent = end_awaitable(frame->awaitable, sent, &result);
    discard_frame(frame);  // may run Python that resumes others
    m.thread.sent = sent;
    return result;
  }
  discard_frame(frame);
  return result;
}

/// Unwinds the value stack for the raised exception and sets ip to its handler in this frame; false: there is
/// none.
template <class S>
[[gnu::always_inline]] inline bool find_handler(Machine<S>& m) {
  const ExceptionRange* range = m.frame->prepared->find_handler(m.ip_index());
  PyObject** target = m.frame->stack_base() + (range ? range->depth : 0);
  while (m.sp > target) Py_XDECREF(m.pop());
  if (!range) return false;
  if (range->push_lasti) m.push(PyLong_FromLong(m.frame->pc()));
  PyObject* exception = take_raised();
  m.push(exception);
  m.ip = m.frame->prepared->instrs.data() + range->target;
  return true;
}

/// Takes the frames of this run off the thread again, as they are.
template <class S>
void suspend(Machine<S>& m) {
  for (Frame* frame = m.frame;; frame = frame->back) {
    uncount_python_call(m.tstate);
    current_raw(m.tstate) = frame->raw->previous;
    m.thread.frame = frame->back;
    if (frame->generator) leave_resumption(m.tstate, frame->generator);
    if (frame->return_to == ReturnTo::entry) return;
  }
}

/// Goes on in the instruction that resumed a generator or advanced an iterator with what the body gave
/// (stolen). False: an exception is set.
template <class S>
[[gnu::always_inline]] inline bool deliver(Machine<S>& m, ReturnTo to, PyObject* result) {
  const bool ends_loop =
      (to == ReturnTo::item && result && m.thread.sent == PYGEN_RETURN) ||
      (to == ReturnTo::item_call && !result && PyErr_ExceptionMatches(PyExc_StopIteration));
  if (ends_loop) {
    Py_XDECREF(result);
    PyErr_Clear();
    m.drop(1);
    m.jump(m.arg() + for_iter_skip);
    return true;
  }
  if (to == ReturnTo::next_call) result = next_call_result(m.thread.sent, result);
  if (!result) return false;
  if (to == ReturnTo::sent) {
    const bool over = m.thread.sent == PYGEN_RETURN;
    m.drop(over && !BOLT_PY312 ? 2 : 1);
    m.push(result);
    if (over) {
      m.jump(m.arg());
      return true;
    }
  } else {
    m.push(result);
  }
  m.ip += m.ip->length;
  return true;
}

template <class S>
PyObject* run_loop(Frame* first, S& semantics, Thread& thread, bool throwing) {
  static void* labels[256];
  if (!labels[0]) [[unlikely]] {
    for (void*& label : labels) label = &&unknown_opcode;
#define OPCODE(name, number, caches) labels[number] = &&label_##name;
#include "interp/opcodes.def"
#undef OPCODE
  }

  Machine<S> m{semantics, thread_state(), thread};
  m.load(first);
  if (first->thrown) [[unlikely]] {
    raise_thrown(first);
    goto error;
  }
  if (throwing) goto error;

#define DISPATCH()                                                                       \
  do {                                                                                   \
    m.store_pc();                                                                        \
    if constexpr (!Machine<S>::plain) {                                                  \
      ++m.s.instructions;                                                                \
      if (m.s.watch_instructions && !m.s.before_instruction(m.synced())) goto suspended; \
    }                                                                                    \
    goto* labels[m.ip->op];                                                              \
  } while (0)

  DISPATCH();

#define OPCODE(name, number, caches)       \
  label_##name : {                         \
    const Next next = ops::name(m);        \
    if (next == Next::step) {              \
      m.ip += 1 + (caches);                \
      DISPATCH();                          \
    }                                      \
    if (next == Next::jumped) DISPATCH();  \
    if (next == Next::error) goto error;   \
    if (next == Next::unwind) goto unwind; \
    if (next == Next::called) goto called; \
    goto returned;                         \
  }
#include "interp/opcodes.def"
#undef OPCODE

called: {
  Frame* callee = m.callee;
  m.frame->sp = m.sp;
  callee->back = m.frame;
  if (callee->return_to == ReturnTo::entry) callee->return_to = ReturnTo::caller;
  m.frame->call_started = true;
  if (!enter(m.s, m.tstate, thread, callee)) {
    if (callee->generator) finish_body(*callee);
    discard_frame(callee);
    goto error;
  }
  m.load(callee);
  if (callee->thrown) [[unlikely]] {
    raise_thrown(callee);
    goto error;
  }
  DISPATCH();
}

returned: {
  const ReturnTo to = m.frame->return_to;
  Frame* caller = to == ReturnTo::entry ? nullptr : m.frame->back;
  PyObject* result = leave(m, m.frame, m.result);
  if (!caller) return result;
  m.load(caller);
  if (to >= ReturnTo::in_place) {
    if (!result) goto error;
    const Next next = ops::go_on_operator(m, to, result);
    if (next == Next::called) goto called;
    if (next == Next::error) goto error;
    m.ip += m.ip->length;
  } else if (to != ReturnTo::caller) [[unlikely]] {
    if (!deliver(m, to, result)) goto error;
  } else {
    if (!result) goto error;
    m.push(result);
    m.ip += m.ip->length;
  }
  caller->call_started = false;
  if (m.pending_failed()) goto error;
  DISPATCH();
}

error:
  if (!PyErr_Occurred()) [[unlikely]]
    PyErr_Format(PyExc_SystemError, "torchbolt: opcode %d failed without an exception", m.ip->op);
  add_traceback(m.frame->raw);

unwind:
  m.frame->call_started = false;
  m.frame->kw_names = nullptr;
  if (find_handler(m)) DISPATCH();
  m.result = nullptr;
  goto returned;

suspended:
  __attribute__((unused));  // plain runs do not stop
  m.s.suspended = m.frame;
  suspend(m);
  return nullptr;

unknown_opcode:
  PyErr_Format(PyExc_SystemError, "torchbolt: unknown opcode %d", m.ip->op);
  goto error;
#undef DISPATCH
}

}  // namespace bolt::interp

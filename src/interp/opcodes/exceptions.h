// interp/opcodes/exceptions.h
// Raising, handling, `with` and exception groups.
//
// The exception being handled lives in the thread's exc_info slot; PUSH_EXC_INFO saves the previous one on
// the value stack and POP_EXCEPT puts it back, as in CPython, so sys.exc_info() and chaining need nothing
// from us.
#pragma once

#include "interp/errors.h"
#include "interp/machine.h"
#include "interp/native_op.h"
#include "interp/semantics_parts.h"

namespace bolt::interp::ops {

BOLT_OP(PUSH_EXC_INFO) {
  PyObject* exception = m.top();
  _PyErr_StackItem* handled = m.tstate->exc_info;
  m.top() = handled->exc_value ? handled->exc_value : Py_NewRef(Py_None);
  m.push(exception);
  handled->exc_value = Py_NewRef(exception);
  return Next::step;
}

BOLT_OP(POP_EXCEPT) {
  _PyErr_StackItem* handled = m.tstate->exc_info;
  PyObject* old = handled->exc_value;
  handled->exc_value = m.pop();
  Py_XDECREF(old);
  return Next::step;
}

BOLT_OP(CHECK_EXC_MATCH) {
  if (check_except_type(m.top()) < 0) return Next::error;
  return m.finish_bool(1, m.s.exception_matches(m.synced(), m.peek(2), m.top()));
}

BOLT_OP(CHECK_EG_MATCH) {
  // [group, class] -> [rest, match]; "no match" is rest unchanged and match None. It also makes the match the
  // exception being handled on this thread.
  PyObject* pair = m.s.split_group(m.synced(), m.peek(2), m.top());
  if (!pair) return Next::error;
  PyObject* rest = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
  PyObject* match = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
  Py_DECREF(pair);
  m.drop(2);
  m.push(rest);
  m.push(match);
  return Next::step;
}

BOLT_OP(RAISE_VARARGS) {
  if (m.arg() > 0) m.s.about_to_raise(m.synced(), m.peek(m.arg()));
  PyObject* cause = m.arg() > 1 ? m.pop() : nullptr;
  PyObject* exception = m.arg() > 0 ? m.pop() : nullptr;
  return do_raise(exception, cause) ? Next::unwind : Next::error;
}

BOLT_OP(RERAISE) {
  if (m.arg()) {
    // The line of the original raise, saved on the stack.
    PyObject* offset = m.peek(m.arg() + 1);
    m.frame->set_pc(static_cast<int>(PyLong_AsLong(offset)));
  }
  set_raised(m.pop());
  return Next::unwind;
}

BOLT_OP(LOAD_ASSERTION_ERROR) {
  m.push(Py_NewRef(PyExc_AssertionError));
  return Next::step;
}

/// `with`: [manager] -> [exit, entered].
template <class S>
[[gnu::always_inline]] inline Next enter_with(Machine<S>& m, bool async) {
  PyObject* exit = nullptr;
  const CallStart start = begin_with(m.s, m.synced(), m.top(), async, &exit);
  if (start.failed()) return Next::error;
  PyObject* manager = m.top();
  m.top() = exit;
  Py_DECREF(manager);
  m.callee = start.frame;
  if (start.frame) return Next::called;
  m.push(start.value);
  return Next::step;
}

BOLT_OP(BEFORE_WITH) { return enter_with(m, false); }
BOLT_OP(BEFORE_ASYNC_WITH) { return enter_with(m, true); }

BOLT_OP(WITH_EXCEPT_START) {
  // [exit, lasti, previous, exception] -> the same and exit's answer
  PyObject* exception = m.top();
  PyObject* trace = PyException_GetTraceback(exception);
  PyObject* args[] = {reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception, trace ? trace : Py_None};
  const CallStart start = m.s.start_call(m.synced(), m.peek(4), args, 3, nullptr);
  Py_XDECREF(trace);
  m.callee = start.frame;
  return start.frame ? Next::called : m.finish(0, start.value);
}

BOLT_OP(END_ASYNC_FOR) {
  // [iterator, exception]
  PyObject* exception = m.top();
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) {
    m.drop(2);
    return Next::step;
  }
  set_raised(m.pop());
  return Next::unwind;
}

}  // namespace bolt::interp::ops

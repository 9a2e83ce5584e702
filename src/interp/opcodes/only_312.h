// interp/opcodes/only_312.h
// Opcodes that CPython 3.12 has and 3.11 has not, or whose shape differs in 3.11 (then both files define it).
#pragma once

#include "interp/opcodes/attributes.h"
#include "interp/opcodes/generators.h"
#include "interp/opcodes/jumps.h"
#include "interp/opcodes/stack.h"
#include "interp/semantics_parts.h"

namespace bolt::interp::ops {

BOLT_OP(LOAD_FAST_CHECK) { return LOAD_FAST(m); }

BOLT_OP(LOAD_FAST_AND_CLEAR) {
  m.push(std::exchange(m.locals[m.arg()], nullptr));
  return Next::step;
}

BOLT_OP(RETURN_CONST) {
  m.result = Py_NewRef(m.consts[m.arg()]);
  return Next::returned;
}

BOLT_OP(LOAD_ATTR) {
  PyObject* name = m.name(m.arg() >> 1);
  if (m.arg() & 1) return load_method(m, name);
  return load_attribute(m, name);
}

BOLT_OP(LOAD_SUPER_ATTR) {
  // [super, class, self]; bit 0: a method call follows; bit 1: two-argument form in the source
  PyObject* got = nullptr;
  const bool method = (m.arg() & 1) != 0;
  const int found = m.s.get_super_attr(m.synced(), m.peek(3), m.peek(2), m.top(), m.name(m.arg() >> 2),
                                       method, (m.arg() & 2) == 0, &got);
  if (found < 0) return Next::error;
  if (found) {
    PyObject* self = m.pop();
    m.drop(2);
    m.push(got);
    m.push(self);
    return Next::step;
  }
  m.drop(3);
  if (method) m.push(nullptr);
  m.push(got);
  return Next::step;
}

BOLT_OP(LOAD_LOCALS) {
  PyObject* space = m.frame->namespace_dict();
  if (!space) PyErr_SetString(PyExc_SystemError, "no locals");
  return m.finish(0, Py_XNewRef(space));
}

BOLT_OP(LOAD_FROM_DICT_OR_DEREF) {
  return m.finish(1, m.s.load_from_dict_or_deref(m.synced(), m.top(), m.arg()));
}

BOLT_OP(LOAD_FROM_DICT_OR_GLOBALS) {
  return m.finish(1, m.s.load_from_dict_or_globals(m.synced(), m.top(), m.name(m.arg())));
}

BOLT_OP(POP_JUMP_IF_TRUE) { return pop_jump_if(m, true, m.arg()); }
BOLT_OP(POP_JUMP_IF_FALSE) { return pop_jump_if(m, false, m.arg()); }
BOLT_OP(POP_JUMP_IF_NONE) { return pop_jump_if_none(m, true, m.arg()); }
BOLT_OP(POP_JUMP_IF_NOT_NONE) { return pop_jump_if_none(m, false, m.arg()); }

BOLT_OP(END_FOR) {
  m.drop(2);
  return Next::step;
}

BOLT_OP(END_SEND) {
  // [receiver, value] -> [value]
  PyObject* value = m.pop();
  PyObject* receiver = m.top();
  m.top() = value;
  Py_DECREF(receiver);
  return Next::step;
}

BOLT_OP(SEND) {
  // [receiver, value] -> [receiver, yielded or returned], returned jumps
  if constexpr (!Machine<S>::plain) {
    m.callee = m.s.start_send(m.synced(), m.peek(2), m.top());
    if (m.callee) return Next::called;
    if (PyErr_Occurred()) return Next::error;
  }
  PyObject* got = nullptr;
  const PySendResult status = m.s.send(m.synced(), m.peek(2), m.top(), &got);
  if (status == PYGEN_ERROR) return Next::error;
  m.drop(1);
  m.push(got);
  return status == PYGEN_RETURN ? m.jump(m.arg()) : Next::step;
}

BOLT_OP(CLEANUP_THROW) {
  // [sub-iterator, last sent, exception] -> [None, value] when the exception is a StopIteration
  PyObject* exception = m.top();
  if (!PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    set_raised(Py_NewRef(exception));
    return Next::unwind;
  }
  PyObject* value = Py_NewRef(reinterpret_cast<PyStopIterationObject*>(exception)->value);
  m.drop(3);
  m.push(Py_NewRef(Py_None));
  m.push(value);
  return Next::step;
}

BOLT_OP(BINARY_SLICE) {
  PyObject* slice = m.s.build(m.synced(), Build::slice, m.sp - 2, 2);
  if (!slice) return Next::error;
  const CallStart start = m.s.start_get_item(m.synced(), m.peek(3), slice);
  Py_DECREF(slice);
  return m.finish_start(3, start);
}

BOLT_OP(STORE_SLICE) {
  // [value, container, start, stop]
  PyObject* slice = m.s.build(m.synced(), Build::slice, m.sp - 2, 2);
  if (!slice) return Next::error;
  const int status = m.s.set_item(m.synced(), m.peek(3), slice, m.peek(4));
  Py_DECREF(slice);
  return m.done(4, status);
}

BOLT_OP(CALL_INTRINSIC_1) { return m.finish(1, intrinsic_1(m.s, m.synced(), m.arg(), m.top())); }
BOLT_OP(CALL_INTRINSIC_2) { return m.finish(2, intrinsic_2(m.synced(), m.arg(), m.peek(2), m.top())); }

/// These two belong to CPython's own entry trampoline and never stand in a function's code.
template <class S>
[[gnu::always_inline]] inline Next not_in_functions(Machine<S>&) {
  PyErr_SetString(PyExc_SystemError, "torchbolt: an opcode of CPython's entry code was reached");
  return Next::error;
}
BOLT_OP(INTERPRETER_EXIT) { return not_in_functions(m); }
BOLT_OP(RESERVED) { return not_in_functions(m); }

}  // namespace bolt::interp::ops

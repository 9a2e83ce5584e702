// interp/opcodes/stack.h
// Opcodes that move values between constants, locals, cells and the value stack. They touch nothing outside
// the frame, so no Semantics is asked.
#pragma once

#include "interp/errors.h"
#include "interp/machine.h"

namespace bolt::interp::ops {

BOLT_OP(NOP) { return Next::step; }
BOLT_OP(CACHE) { return Next::step; }
BOLT_OP(EXTENDED_ARG) { return Next::step; }

BOLT_OP(RESUME) {
  // 2 and 3: after a yield from or an await, where CPython does not look at its eval breaker either.
  if (m.arg() < 2 && m.pending_failed()) return Next::error;
  return Next::step;
}

BOLT_OP(POP_TOP) {
  PyObject* value = m.pop();
  Py_DECREF(value);
  return Next::step;
}

BOLT_OP(PUSH_NULL) {
  m.push(nullptr);
  return Next::step;
}

BOLT_OP(COPY) {
  m.push(Py_XNewRef(m.peek(m.arg())));
  return Next::step;
}

BOLT_OP(SWAP) {
  std::swap(m.top(), m.peek(m.arg()));
  return Next::step;
}

BOLT_OP(LOAD_CONST) {
  m.push(Py_NewRef(m.consts[m.arg()]));
  return Next::step;
}

BOLT_OP(LOAD_FAST) {
  PyObject* value = m.locals[m.arg()];
  if (!value) [[unlikely]] {
    unbound_error(*m.frame, m.arg());
    return Next::error;
  }
  m.push(Py_NewRef(value));
  return Next::step;
}

BOLT_OP(STORE_FAST) {
  PyObject* old = m.locals[m.arg()];
  m.locals[m.arg()] = m.pop();
  Py_XDECREF(old);
  return Next::step;
}

BOLT_OP(DELETE_FAST) {
  PyObject* old = m.locals[m.arg()];
  if (!old) {
    unbound_error(*m.frame, m.arg());
    return Next::error;
  }
  m.locals[m.arg()] = nullptr;
  Py_DECREF(old);
  return Next::step;
}

BOLT_OP(MAKE_CELL) {
  PyObject* initial = m.locals[m.arg()];
  PyObject* cell = PyCell_New(initial);
  if (!cell) return Next::error;
  m.locals[m.arg()] = cell;
  Py_XDECREF(initial);
  return Next::step;
}

BOLT_OP(COPY_FREE_VARS) {
  PyObject* closure = m.frame->closure();
  PyObject** out = m.locals + m.frame->prepared->nlocalsplus - m.arg();
  for (int i = 0; i < m.arg(); ++i) out[i] = Py_NewRef(PyTuple_GET_ITEM(closure, i));
  return Next::step;
}

BOLT_OP(LOAD_CLOSURE) { return LOAD_FAST(m); }

}  // namespace bolt::interp::ops

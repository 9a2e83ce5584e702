// interp/opcodes/jumps.h
// Jumps and loops. A jump's argument counts code units from the following instruction.
#pragma once

#include "interp/opcodes/operators.h"

namespace bolt::interp::ops {

BOLT_OP(JUMP_FORWARD) { return m.jump(m.arg()); }
BOLT_OP(JUMP_BACKWARD_NO_INTERRUPT) { return m.jump(-m.arg()); }

BOLT_OP(JUMP_BACKWARD) {
  if (m.pending_failed()) [[unlikely]]
    return Next::error;
  return m.jump(-m.arg());
}

/// Pops the condition and jumps by `delta` if its truth is `wanted`.
template <class S>
[[gnu::always_inline]] inline Next pop_jump_if(Machine<S>& m, bool wanted, int delta) {
  const int truth = truth_of(m, m.top());
  if (truth < 0) [[unlikely]]
    return Next::error;
  m.drop(1);
  return (truth != 0) == wanted ? m.jump(delta) : Next::step;
}

/// Pops a value and jumps by `delta` if it `is None` as `wanted` says.
template <class S>
[[gnu::always_inline]] inline Next pop_jump_if_none(Machine<S>& m, bool wanted, int delta) {
  const bool none = m.s.is_same(m.synced(), m.top(), Py_None);
  PyObject* value = m.pop();
  Py_DECREF(value);
  return none == wanted ? m.jump(delta) : Next::step;
}

BOLT_OP(GET_ITER) { return m.finish(1, m.s.get_iter(m.synced(), m.top())); }

BOLT_OP(FOR_ITER) {
  PyObject* value;
  if constexpr (Machine<S>::plain) {
    value = m.s.iter_next(m.synced(), m.top());
  } else {
    const CallStart start = m.s.start_next(m.synced(), m.top());
    if (start.frame) {
      m.callee = start.frame;
      return Next::called;
    }
    value = start.value;
  }
  if (value) [[likely]] {
    m.push(value);
    return Next::step;
  }
  if (PyErr_Occurred()) [[unlikely]]
    return Next::error;
  m.drop(1);
  return m.jump(m.arg() + for_iter_skip);
}

}  // namespace bolt::interp::ops

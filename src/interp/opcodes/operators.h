// interp/opcodes/operators.h
// Opcodes for operators and comparisons. Plain execution takes exact ints and floats here, before any lookup.
#pragma once

#include "interp/fast_numbers.h"
#include "interp/machine.h"

namespace bolt::interp::ops {

BOLT_OP(UNARY_NEGATIVE) { return m.finish(1, m.s.unary_op(m.synced(), Unary::negative, m.top())); }
BOLT_OP(UNARY_INVERT) { return m.finish(1, m.s.unary_op(m.synced(), Unary::invert, m.top())); }

/// The truth of a stack entry: the singletons first, which need no lookup and cannot fail.
template <class S>
[[gnu::always_inline]] inline int truth_of(Machine<S>& m, PyObject* value) {
  if (value == Py_True) return 1;
  if (value == Py_False || value == Py_None) return 0;
  return m.s.truth(m.synced(), value);
}

BOLT_OP(UNARY_NOT) {
  const int truth = truth_of(m, m.top());
  return m.finish_bool(1, truth < 0 ? truth : !truth);
}

/// Ends an operator with an answer, or has the operand asked whose frame was started.
template <class S>
[[gnu::always_inline]] inline Next finish_operator(Machine<S>& m, CallStart start) {
  if (!start.frame) return m.finish(2, start.value);
  m.callee = start.frame;
  return Next::called;
}

/// `asked` has returned `result` (stolen).
template <class S>
[[gnu::always_inline]] inline Next go_on_operator(Machine<S>& m, ReturnTo asked, PyObject* result) {
  if (result != Py_NotImplemented) return m.finish(2, result);
  Py_DECREF(result);
  if (m.ip->op == op::COMPARE_OP)
    return finish_operator(
        m, m.s.go_on_compare(m.synced(), compare_operator(m.arg()), m.peek(2), m.top(), asked));
  return finish_operator(m, m.s.go_on_binary_op(m.synced(), m.arg(), m.peek(2), m.top(), asked));
}

BOLT_OP(BINARY_OP) {
  if constexpr (Machine<S>::plain) {
    if (PyObject* value = fast_binary_op(m.arg(), m.peek(2), m.top())) return m.finish(2, value);
  }
  return finish_operator(m, m.s.start_binary_op(m.synced(), m.arg(), m.peek(2), m.top()));
}

BOLT_OP(COMPARE_OP) {
  const int op = compare_operator(m.arg());
  if constexpr (Machine<S>::plain) {
    if (const int known = fast_compare(op, m.peek(2), m.top()); known >= 0) return m.finish_bool(2, known);
  }
  return finish_operator(m, m.s.start_compare(m.synced(), op, m.peek(2), m.top()));
}

BOLT_OP(IS_OP) { return m.finish_bool(2, m.s.is_same(m.synced(), m.peek(2), m.top()) != (m.arg() != 0)); }

BOLT_OP(CONTAINS_OP) {
  const int found = m.s.contains(m.synced(), m.top(), m.peek(2));
  return m.finish_bool(2, found < 0 ? found : found != m.arg());
}

}  // namespace bolt::interp::ops

// interp/opcodes/only_311.h
// Opcodes that CPython 3.11 has and 3.12 has not, or whose shape differs in 3.12 (then both files define it).
#pragma once

#include "interp/opcodes/attributes.h"
#include "interp/opcodes/jumps.h"
#include "interp/semantics_parts.h"

namespace bolt::interp::ops {

BOLT_OP(UNARY_POSITIVE) { return m.finish(1, m.s.unary_op(m.synced(), Unary::positive, m.top())); }

BOLT_OP(LOAD_ATTR) { return load_attribute(m, m.name(m.arg())); }
BOLT_OP(LOAD_METHOD) { return load_method(m, m.name(m.arg())); }
BOLT_OP(LOAD_CLASSDEREF) {
  return m.finish(0, m.s.load_from_dict_or_deref(m.synced(), m.frame->namespace_dict(), m.arg()));
}

BOLT_OP(PRECALL) { return Next::step; }

BOLT_OP(POP_JUMP_FORWARD_IF_TRUE) { return pop_jump_if(m, true, m.arg()); }
BOLT_OP(POP_JUMP_FORWARD_IF_FALSE) { return pop_jump_if(m, false, m.arg()); }
BOLT_OP(POP_JUMP_FORWARD_IF_NONE) { return pop_jump_if_none(m, true, m.arg()); }
BOLT_OP(POP_JUMP_FORWARD_IF_NOT_NONE) { return pop_jump_if_none(m, false, m.arg()); }
BOLT_OP(POP_JUMP_BACKWARD_IF_TRUE) {
  if (m.pending_failed()) return Next::error;
  return pop_jump_if(m, true, -m.arg());
}
BOLT_OP(POP_JUMP_BACKWARD_IF_FALSE) {
  if (m.pending_failed()) return Next::error;
  return pop_jump_if(m, false, -m.arg());
}
BOLT_OP(POP_JUMP_BACKWARD_IF_NONE) {
  if (m.pending_failed()) return Next::error;
  return pop_jump_if_none(m, true, -m.arg());
}
BOLT_OP(POP_JUMP_BACKWARD_IF_NOT_NONE) {
  if (m.pending_failed()) return Next::error;
  return pop_jump_if_none(m, false, -m.arg());
}

/// Keeps the value and jumps, or pops it.
template <class S>
[[gnu::always_inline]] inline Next jump_if_or_pop(Machine<S>& m, bool wanted) {
  const int truth = truth_of(m, m.top());
  if (truth < 0) [[unlikely]]
    return Next::error;
  if ((truth != 0) == wanted) return m.jump(m.arg());
  m.drop(1);
  return Next::step;
}
BOLT_OP(JUMP_IF_TRUE_OR_POP) { return jump_if_or_pop(m, true); }
BOLT_OP(JUMP_IF_FALSE_OR_POP) { return jump_if_or_pop(m, false); }

BOLT_OP(SEND) {
  // [receiver, value] -> [receiver, yielded], or [returned] and a jump
  if constexpr (!Machine<S>::plain) {
    m.callee = m.s.start_send(m.synced(), m.peek(2), m.top());
    if (m.callee) return Next::called;
    if (PyErr_Occurred()) return Next::error;
  }
  PyObject* got = nullptr;
  const PySendResult status = m.s.send(m.synced(), m.peek(2), m.top(), &got);
  if (status == PYGEN_ERROR) return Next::error;
  if (status == PYGEN_RETURN) {
    m.drop(2);
    m.push(got);
    return m.jump(m.arg());
  }
  m.drop(1);
  m.push(got);
  return Next::step;
}

BOLT_OP(ASYNC_GEN_WRAP) { return m.finish(1, run_native_op(op::ASYNC_GEN_WRAP, 0, {m.top()})); }

BOLT_OP(PREP_RERAISE_STAR) {
  return m.finish(2, run_native_op(op::PREP_RERAISE_STAR, 0, {m.peek(2), m.top()}));
}

BOLT_OP(LIST_TO_TUPLE) { return m.finish(1, m.s.list_to_tuple(m.synced(), m.top())); }
BOLT_OP(IMPORT_STAR) { return m.done(1, m.s.import_star(m.synced(), m.top())); }
BOLT_OP(PRINT_EXPR) { return m.done(1, print_expression(m.s, m.synced(), m.top())); }

}  // namespace bolt::interp::ops

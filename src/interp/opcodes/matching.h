// interp/opcodes/matching.h
// Structural pattern matching.
#pragma once

#include "interp/machine.h"

namespace bolt::interp::ops {

BOLT_OP(GET_LEN) {
  const Py_ssize_t length = m.s.length(m.synced(), m.top());
  return m.finish(0, length < 0 ? nullptr : PyLong_FromSsize_t(length));
}

BOLT_OP(MATCH_MAPPING) { return m.finish_bool(0, (Py_TYPE(m.top())->tp_flags & Py_TPFLAGS_MAPPING) != 0); }

BOLT_OP(MATCH_SEQUENCE) { return m.finish_bool(0, (Py_TYPE(m.top())->tp_flags & Py_TPFLAGS_SEQUENCE) != 0); }

BOLT_OP(MATCH_KEYS) { return m.finish(0, m.s.match_keys(m.synced(), m.peek(2), m.top())); }

BOLT_OP(MATCH_CLASS) {
  return m.finish(3, m.s.match_class(m.synced(), m.peek(3), m.peek(2), m.arg(), m.top()));
}

}  // namespace bolt::interp::ops

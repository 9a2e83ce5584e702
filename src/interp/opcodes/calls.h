// interp/opcodes/calls.h
// Calls, functions, imports. A call of Python code becomes a frame that the same loop runs next.
#pragma once

#include "interp/call.h"
#include "interp/machine.h"
#include "interp/semantics_parts.h"

namespace bolt::interp::ops {

/// Ends a call instruction with what start_call gave: pops the operands now (a new frame has its own
/// references).
template <class S>
[[gnu::always_inline]] inline Next finish_call(Machine<S>& m, CallStart start, int operands) {
  m.frame->kw_names = nullptr;
  if (start.value) {
    m.drop(operands);
    m.push(start.value);
    return m.pending_failed() ? Next::error : Next::step;
  }
  return m.finish_start(operands, start);
}

BOLT_OP(KW_NAMES) {
  m.frame->kw_names = m.consts[m.arg()];
  return Next::step;
}

BOLT_OP(CALL) {
  // [method, self, args...] or [null, callable, args...]
  const int argc = m.arg();
  PyObject* kwnames = m.frame->kw_names;
  PyObject* method = m.peek(argc + 2);
  PyObject** args = m.sp - argc - (method ? 1 : 0);
  PyObject* callable = method ? method : m.peek(argc + 1);
  const size_t nargs = static_cast<size_t>(m.sp - args) - keyword_count(kwnames);
  return finish_call(m, m.s.start_call(m.synced(), callable, args, nargs, kwnames), argc + 2);
}

BOLT_OP(CALL_FUNCTION_EX) {
  // [null, callable, args] or [null, callable, args, kwargs]
  const bool has_kwargs = (m.arg() & 1) != 0;
  PyObject* kwargs = has_kwargs ? m.top() : nullptr;
  PyObject* args = m.peek(has_kwargs ? 2 : 1);
  PyObject* callable = m.peek(has_kwargs ? 3 : 2);
  return finish_call(m, start_star_call(m.s, m.synced(), callable, args, kwargs), has_kwargs ? 4 : 3);
}

BOLT_OP(MAKE_FUNCTION) {
  int extras = 0;
  for (int flag = 1; flag <= 8; flag <<= 1) extras += (m.arg() & flag) != 0;
  PyObject* const* first = m.sp - 1 - extras;
  return m.finish(extras + 1, m.s.make_function(m.synced(), m.top(), m.arg(), first));
}

BOLT_OP(IMPORT_NAME) { return m.finish(2, m.s.import_name(m.synced(), m.name(m.arg()), m.top(), m.peek(2))); }

BOLT_OP(IMPORT_FROM) { return m.finish(0, m.s.import_from(m.synced(), m.top(), m.name(m.arg()))); }

}  // namespace bolt::interp::ops

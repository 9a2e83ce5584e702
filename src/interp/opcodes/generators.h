// interp/opcodes/generators.h
// Returning, yielding, delegating, awaiting.
#pragma once

#include "interp/machine.h"
#include "interp/semantics_parts.h"

namespace bolt::interp::ops {

BOLT_OP(RETURN_VALUE) {
  m.result = m.pop();
  return Next::returned;
}

BOLT_OP(RETURN_GENERATOR) {
  // A generator's object is made by CPython when its function is called (Semantics::make_generator); its
  // frame starts after this instruction.
  PyErr_SetString(PyExc_SystemError, "torchbolt: a generator function's frame was entered directly");
  return Next::error;
}

BOLT_OP(YIELD_VALUE) {
  m.result = m.pop();
  reinterpret_cast<PyGenObject*>(m.frame->generator)->gi_frame_state = FRAME_SUSPENDED;
  return Next::returned;
}

BOLT_OP(GET_AWAITABLE) { return m.finish(1, get_awaitable(m.s, m.synced(), m.top(), m.arg())); }
BOLT_OP(GET_AITER) { return m.finish(1, m.s.get_async_iter(m.synced(), m.top())); }
BOLT_OP(GET_ANEXT) { return m.finish(0, m.s.get_async_next(m.synced(), m.top())); }
BOLT_OP(GET_YIELD_FROM_ITER) { return m.finish(1, get_yield_from_iter(m.s, m.synced(), m.top())); }

}  // namespace bolt::interp::ops

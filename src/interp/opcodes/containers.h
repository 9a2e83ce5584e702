// interp/opcodes/containers.h
// Opcodes that build containers and strings, add to them and take them apart.
#pragma once

#include <memory>

#include "interp/machine.h"

namespace bolt::interp::ops {

/// A new container out of the `operands` top entries.
template <class S>
[[gnu::always_inline]] inline Next build(Machine<S>& m, Build kind, int operands) {
  return m.finish(operands, m.s.build(m.synced(), kind, m.sp - operands, operands));
}

BOLT_OP(BUILD_TUPLE) { return build(m, Build::tuple, m.arg()); }
BOLT_OP(BUILD_LIST) { return build(m, Build::list, m.arg()); }
BOLT_OP(BUILD_SET) { return build(m, Build::set, m.arg()); }
BOLT_OP(BUILD_MAP) { return build(m, Build::map, 2 * m.arg()); }
BOLT_OP(BUILD_CONST_KEY_MAP) { return build(m, Build::const_key_map, m.arg() + 1); }
BOLT_OP(BUILD_STRING) { return build(m, Build::string, m.arg()); }
BOLT_OP(BUILD_SLICE) { return build(m, Build::slice, m.arg()); }

BOLT_OP(LIST_APPEND) { return m.done(1, m.s.list_append(m.synced(), m.peek(m.arg() + 1), m.top())); }
BOLT_OP(SET_ADD) { return m.done(1, m.s.set_add(m.synced(), m.peek(m.arg() + 1), m.top())); }
BOLT_OP(MAP_ADD) { return m.done(2, m.s.map_add(m.synced(), m.peek(m.arg() + 2), m.peek(2), m.top())); }

BOLT_OP(LIST_EXTEND) { return m.done(1, m.s.list_extend(m.synced(), m.peek(m.arg() + 1), m.top())); }
BOLT_OP(SET_UPDATE) { return m.done(1, m.s.set_update(m.synced(), m.peek(m.arg() + 1), m.top())); }
BOLT_OP(DICT_UPDATE) { return m.done(1, m.s.dict_update(m.synced(), m.peek(m.arg() + 1), m.top())); }
BOLT_OP(DICT_MERGE) {
  // Below the dict lie the argument tuple and the callable of the coming CALL_FUNCTION_EX.
  return m.done(1, m.s.dict_merge(m.synced(), m.peek(m.arg() + 1), m.top(), m.peek(m.arg() + 3)));
}

BOLT_OP(FORMAT_VALUE) {
  const bool has_spec = (m.arg() & 4) != 0;
  PyObject* spec = has_spec ? m.top() : nullptr;
  PyObject* value = m.peek(has_spec ? 2 : 1);
  return m.finish(has_spec ? 2 : 1, m.s.format_value(m.synced(), value, m.arg() & 3, spec));
}

/// Replaces the sequence on top by `n` values, the first on top; `fill(out)` puts them in order, first in
/// out[0].
template <class S, class Fill>
[[gnu::always_inline]] inline Next unpack(Machine<S>& m, int n, Fill fill) {
  PyObject* few[8];
  std::unique_ptr<PyObject*[]> many;
  if (n > 8) many.reset(new PyObject*[n]);
  PyObject** out = many ? many.get() : few;
  if (fill(out) < 0) [[unlikely]]
    return Next::error;
  PyObject* sequence = m.pop();
  for (int i = n - 1; i >= 0; --i) m.push(out[i]);
  Py_DECREF(sequence);
  return Next::step;
}

BOLT_OP(UNPACK_SEQUENCE) {
  const int n = m.arg();
  return unpack(m, n, [&](PyObject** out) { return m.s.unpack_sequence(m.synced(), m.top(), n, out); });
}

BOLT_OP(UNPACK_EX) {
  const int before = m.arg() & 0xFF;
  const int after = m.arg() >> 8;
  return unpack(m, before + 1 + after,
                [&](PyObject** out) { return m.s.unpack_ex(m.synced(), m.top(), before, after, out); });
}

}  // namespace bolt::interp::ops

// interp/opcodes/names.h
// Opcodes that read and write names outside the frame's locals: globals, builtins, namespaces, cells.
#pragma once

#include "interp/machine.h"
#include "interp/semantics_parts.h"

namespace bolt::interp::ops {

BOLT_OP(LOAD_GLOBAL) {
  PyObject* value = m.s.load_global(m.synced(), m.name(m.arg() >> 1));
  if (!value) [[unlikely]]
    return Next::error;
  if (m.arg() & 1) m.push(nullptr);
  m.push(value);
  return Next::step;
}

BOLT_OP(STORE_GLOBAL) { return m.done(1, m.s.store_global(m.synced(), m.name(m.arg()), m.top())); }
BOLT_OP(DELETE_GLOBAL) { return m.done(0, m.s.delete_global(m.synced(), m.name(m.arg()))); }

BOLT_OP(LOAD_NAME) { return m.finish(0, m.s.load_name(m.synced(), m.name(m.arg()))); }
BOLT_OP(STORE_NAME) { return m.done(1, m.s.store_name(m.synced(), m.name(m.arg()), m.top())); }
BOLT_OP(DELETE_NAME) { return m.done(0, m.s.delete_name(m.synced(), m.name(m.arg()))); }

BOLT_OP(LOAD_DEREF) { return m.finish(0, m.s.load_deref(m.synced(), m.arg())); }
BOLT_OP(STORE_DEREF) { return m.done(1, m.s.store_deref(m.synced(), m.arg(), m.top())); }
BOLT_OP(DELETE_DEREF) { return m.done(0, m.s.delete_deref(m.synced(), m.arg())); }

BOLT_OP(LOAD_BUILD_CLASS) { return m.finish(0, m.s.load_build_class(m.synced())); }

BOLT_OP(SETUP_ANNOTATIONS) { return m.done(0, setup_annotations(m.synced())); }

}  // namespace bolt::interp::ops

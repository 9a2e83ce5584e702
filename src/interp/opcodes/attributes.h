// interp/opcodes/attributes.h
// Opcodes that read, write and delete attributes and items.
#pragma once

#include <utility>

#include "interp/attribute_cache.h"
#include "interp/machine.h"

namespace bolt::interp::ops {

/// Pushes what a method call needs: [method, self] or [null, attribute].
template <class S>
[[gnu::always_inline]] inline Next load_method(Machine<S>& m, PyObject* name) {
  PyObject* method = nullptr;
  const int found = m.s.get_method(m.synced(), m.top(), name, &method);
  if (found < 0) [[unlikely]]
    return Next::error;
  PyObject* object = m.top();
  if (found) {
    m.top() = method;
    m.push(object);
  } else {
    m.top() = nullptr;
    m.push(method);
    Py_DECREF(object);
  }
  return Next::step;
}

/// Nobody looks on who wants to know of every attribute.
template <class S>
[[gnu::always_inline]] inline bool caches_attributes(const Machine<S>& m) {
  return Machine<S>::plain || !m.s.notes_attributes;
}

/// LOAD_ATTR of `name`.
template <class S>
[[gnu::always_inline]] inline Next load_attribute(Machine<S>& m, PyObject* name) {
  if (caches_attributes(m))
    if (PyObject** place = cached_attribute(m.ip, m.top()); place && *place)
      return m.finish(1, Py_NewRef(*place));
  const CallStart start = m.s.start_get_attr(m.synced(), m.top(), name);
  if (start.value && caches_attributes(m)) note_attribute_place(m.ip, m.top(), name);
  return m.finish_start(1, start);
}

BOLT_OP(STORE_ATTR) {
  if (caches_attributes(m)) {
    if (PyObject** place = cached_attribute(m.ip, m.top())) {
      PyObject* before = store_cached_attribute(m.ip, m.top(), place, Py_NewRef(m.peek(2)));
      m.drop(2);
      Py_XDECREF(before);
      return Next::step;
    }
  }
  const int status = m.s.set_attr(m.synced(), m.top(), m.name(m.arg()), m.peek(2));
  if (status == 0 && caches_attributes(m)) note_attribute_place(m.ip, m.top(), m.name(m.arg()));
  return m.done(2, status);
}
BOLT_OP(DELETE_ATTR) { return m.done(1, m.s.delete_attr(m.synced(), m.top(), m.name(m.arg()))); }

BOLT_OP(STORE_SUBSCR) { return m.done(3, m.s.set_item(m.synced(), m.peek(2), m.top(), m.peek(3))); }
BOLT_OP(DELETE_SUBSCR) { return m.done(2, m.s.delete_item(m.synced(), m.peek(2), m.top())); }

BOLT_OP(BINARY_SUBSCR) { return m.finish_start(2, m.s.start_get_item(m.synced(), m.peek(2), m.top())); }

}  // namespace bolt::interp::ops

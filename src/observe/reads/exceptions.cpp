// observe/reads/exceptions.cpp
// Exceptions that are raised, compared with classes and split -> guards on the classes, and notes of what
// being raised writes into an exception.

#include <cstddef>
#include <utility>

#include "observe/calls/controls.h"
#include "observe/recording.h"

namespace bolt::observe {

using interp::Semantics;

int Recording::exception_matches(Frame& frame, PyObject* exception, PyObject* cls) {
  if (on) world.read_deep(cls);  // classes, or tuples of them
  return Semantics::exception_matches(frame, exception, cls);
}

/// Being raised writes into an exception where it was raised and what was handled then.
void Recording::about_to_raise(Frame& frame, PyObject* exception) {
  if (!on || !PyExceptionInstance_Check(exception) || !world.find(exception)) return;
  auto* object = reinterpret_cast<PyBaseExceptionObject*>(exception);
  // What is there is from a call long over; what is added is in front of it.
  if (object->traceback || object->context) return end_here(frame, Why::raised_again);
  for (const auto& [name, offset] : {std::pair("__traceback__", offsetof(PyBaseExceptionObject, traceback)),
                                     std::pair("__context__", offsetof(PyBaseExceptionObject, context))}) {
    world.field(exception, static_cast<Py_ssize_t>(offset), interned(name));
    world.writes.about_to_write_field(exception, static_cast<Py_ssize_t>(offset));
  }
}

namespace {

/// Is it, or holds it, an exception that the run did not make?
bool holds_outside(World& world, PyObject* exception) {
  if (world.find(exception)) return true;
  if (!PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup))) return false;
  PyObject* all = reinterpret_cast<PyBaseExceptionGroupObject*>(exception)->excs;
  for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(all); ++i)
    if (holds_outside(world, PyTuple_GET_ITEM(all, i))) return true;
  return false;
}

}  // namespace

PyObject* Recording::split_group(Frame& frame, PyObject* group, PyObject* cls) {
  if (on) world.read_deep(cls);
  if (on && holds_outside(world, group)) end_here(frame, Why::exceptions_split);
  return Semantics::split_group(frame, group, cls);
}

}  // namespace bolt::observe

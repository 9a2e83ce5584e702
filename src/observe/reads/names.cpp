// observe/reads/names.cpp
// A name in the code (a global, a cell, an import) -> what it stands for, with its guard. Names that are
// written are noted.

#include "observe/recording.h"

namespace bolt::observe {

using interp::Semantics;

PyObject* Recording::load_global(Frame& frame, PyObject* name) {
  if (!on || !PyDict_CheckExact(frame.globals()) || !PyDict_CheckExact(frame.builtins()))
    return Semantics::load_global(frame, name);
  world.pin(frame.globals());
  PyObject* value = world.dict_get(frame.globals(), name);
  if (!value && !PyErr_Occurred()) {
    world.pin(frame.builtins());
    value = world.dict_get(frame.builtins(), name);
  }
  return value ? Py_NewRef(value) : PyErr_Occurred() ? nullptr : Semantics::load_global(frame, name);
}

int Recording::store_global(Frame& frame, PyObject* name, PyObject* value) {
  if (on) {
    world.pin(frame.globals());
    world.writes.about_to_write_item(frame.globals(), name);
  }
  return Semantics::store_global(frame, name, stored(value));
}

int Recording::delete_global(Frame& frame, PyObject* name) {
  if (on) {
    world.pin(frame.globals());
    world.dict_get(frame.globals(), name);
    world.writes.about_to_write_item(frame.globals(), name, true);
  }
  return Semantics::delete_global(frame, name);
}

PyObject* Recording::load_name(Frame& frame, PyObject* name) {
  if (on && !frame.namespace_dict()) return load_global(frame, name);
  if (on) end_here(frame, Why::class_body);
  return Semantics::load_name(frame, name);
}

PyObject* Recording::load_deref(Frame& frame, int index) {
  PyObject* value = on ? world.cell_get(frame.locals()[index]) : nullptr;
  return value ? Py_NewRef(value) : Semantics::load_deref(frame, index);
}

int Recording::store_deref(Frame& frame, int index, PyObject* value) {
  if (on) world.writes.about_to_write(frame.locals()[index]);
  return Semantics::store_deref(frame, index, stored(value));
}

int Recording::delete_deref(Frame& frame, int index) {
  if (on) {
    world.cell_get(frame.locals()[index]);
    world.writes.about_to_write(frame.locals()[index]);
  }
  return Semantics::delete_deref(frame, index);
}

PyObject* Recording::load_build_class(Frame& frame) {
  if (on) end_here(frame, Why::class_defined);
  return Semantics::load_build_class(frame);
}

// A class statement makes another class in each call, of which a guard could say nothing.
void Recording::make_class(Frame& frame) {
  if (on) end_here(frame, Why::class_made);
}

PyObject* Recording::import_name(Frame& frame, PyObject* name, PyObject* fromlist, PyObject* level) {
  PyObject* module = Semantics::import_name(frame, name, fromlist, level);
  if (on) world.imported(module);
  return module;
}

int Recording::import_star(Frame& frame, PyObject* module) {
  if (on) end_here(frame, Why::import_star);
  return Semantics::import_star(frame, module);
}

}  // namespace bolt::observe

// interp/names.cpp
// Semantics of names, cells and imports.

#include "interp/errors.h"
#include "interp/special.h"

namespace bolt::interp {

namespace {

/// space[name] for any mapping; null without an exception when the key is missing.
PyObject* find(PyObject* space, PyObject* name) {
  if (PyDict_CheckExact(space)) return Py_XNewRef(PyDict_GetItemWithError(space, name));
  PyObject* value = PyObject_GetItem(space, name);
  if (!value && PyErr_ExceptionMatches(PyExc_KeyError)) PyErr_Clear();
  return value;
}

PyObject* no_namespace(const char* format, PyObject* name) {
  PyErr_Format(PyExc_SystemError, format, name);
  return nullptr;
}

}  // namespace

PyObject* Semantics::load_global(Frame& frame, PyObject* name) {
  PyObject* value = find(frame.globals(), name);
  if (!value && !PyErr_Occurred()) value = find(frame.builtins(), name);
  if (!value && !PyErr_Occurred()) return name_error(name);
  return value;
}

int Semantics::store_global(Frame& frame, PyObject* name, PyObject* value) {
  return PyDict_SetItem(frame.globals(), name, value);
}

int Semantics::delete_global(Frame& frame, PyObject* name) {
  if (PyDict_DelItem(frame.globals(), name) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_KeyError)) {
    PyErr_Clear();
    name_error(name);
  }
  return -1;
}

PyObject* Semantics::load_name(Frame& frame, PyObject* name) {
  PyObject* space = frame.namespace_dict();
  if (!space) return no_namespace("no locals when loading %R", name);
  return load_from_dict_or_globals(frame, space, name);
}

PyObject* Semantics::load_from_dict_or_globals(Frame& frame, PyObject* space, PyObject* name) {
  PyObject* value = find(space, name);
  return value || PyErr_Occurred() ? value : Semantics::load_global(frame, name);
}

int Semantics::store_name(Frame& frame, PyObject* name, PyObject* value) {
  PyObject* space = frame.namespace_dict();
  if (!space) return no_namespace("no locals found when storing %R", name), -1;
  return PyDict_CheckExact(space) ? PyDict_SetItem(space, name, value) : PyObject_SetItem(space, name, value);
}

int Semantics::delete_name(Frame& frame, PyObject* name) {
  PyObject* space = frame.namespace_dict();
  if (!space) return no_namespace("no locals when deleting %R", name), -1;
  if (PyObject_DelItem(space, name) == 0) return 0;
  PyErr_Clear();
  name_error(name);
  return -1;
}

// -- Cells
// ------------------------------------------------------------------------------------------------------------

PyObject* Semantics::load_deref(Frame& frame, int index) {
  PyObject* value = PyCell_GET(frame.locals()[index]);
  return value ? Py_NewRef(value) : unbound_error(frame, index);
}

int Semantics::store_deref(Frame& frame, int index, PyObject* value) {
  return PyCell_Set(frame.locals()[index], value);
}

int Semantics::delete_deref(Frame& frame, int index) {
  PyObject* cell = frame.locals()[index];
  if (!PyCell_GET(cell)) return unbound_error(frame, index), -1;
  return PyCell_Set(cell, nullptr);
}

PyObject* Semantics::load_from_dict_or_deref(Frame& frame, PyObject* space, int index) {
  PyObject* name = PyTuple_GET_ITEM(frame.code()->co_localsplusnames, index);
  PyObject* value = find(space, name);
  if (value || PyErr_Occurred()) return value;
  return load_deref(frame, index);
}

PyObject* Semantics::load_build_class(Frame& frame) {
  PyObject* value = find(frame.builtins(), names_of.build_class_);
  if (!value && !PyErr_Occurred()) PyErr_SetString(PyExc_NameError, "__build_class__ not found");
  return value;
}

// -- Imports
// ----------------------------------------------------------------------------------------------------------

PyObject* Semantics::import_name(Frame& frame, PyObject* name, PyObject* fromlist, PyObject* level) {
  PyObject* import = find(frame.builtins(), names_of.import_);
  if (!import) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "__import__ not found");
    return nullptr;
  }
  PyObject* space = frame.namespace_dict() ? frame.namespace_dict() : Py_None;
  PyObject* args[] = {name, frame.globals(), space, fromlist, level};
  PyObject* module = call_native(frame, import, args, 5, nullptr);
  Py_DECREF(import);
  return module;
}

namespace {

bool is_initializing(PyObject* module) {
  PyObject* spec = nullptr;
  _PyObject_LookupAttr(module, names_of.spec_, &spec);
  const bool initializing = spec && _PyModuleSpec_IsInitializing(spec);
  Py_XDECREF(spec);
  PyErr_Clear();
  return initializing;
}

/// ImportError of `from module import name`.
PyObject* import_from_error(PyObject* module, PyObject* name, PyObject* package) {
  PyObject* shown = package ? Py_NewRef(package) : PyUnicode_FromString("<unknown module name>");
  PyObject* path = PyModule_GetFilenameObject(module);
  PyObject* message;
  if (!path) {
    PyErr_Clear();
    message = PyUnicode_FromFormat("cannot import name %R from %R (unknown location)", name, shown);
  } else if (is_initializing(module)) {
    message = PyUnicode_FromFormat(
        "cannot import name %R from partially initialized module %R (most likely due to a circular import) "
        "(%S)",
        name, shown, path);
  } else {
    message = PyUnicode_FromFormat("cannot import name %R from %R (%S)", name, shown, path);
  }
#if BOLT_PY312
  if (message) PyErr_SetImportError(message, shown, path);
#else
  if (message) PyErr_SetImportError(message, shown, path);
#endif
  Py_XDECREF(message);
  Py_XDECREF(path);
  Py_XDECREF(shown);
  return nullptr;
}

}  // namespace

PyObject* Semantics::import_from(Frame& frame, PyObject* module, PyObject* name) {
  PyObject* value = get_attr(frame, module, name);
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  // A submodule in the middle of a circular import is in sys.modules before it is an attribute of its
  // package.
  PyObject* package = nullptr;
  if (_PyObject_LookupAttr(module, names_of.name_, &package) < 0) return nullptr;
  if (package && !PyUnicode_Check(package)) Py_CLEAR(package);
  if (package) {
    PyObject* full = PyUnicode_FromFormat("%U.%U", package, name);
    value = full ? PyImport_GetModule(full) : nullptr;
    Py_XDECREF(full);
  }
  if (!value && !PyErr_Occurred()) import_from_error(module, name, package);
  Py_XDECREF(package);
  return value;
}

namespace {

/// TypeError for an entry of `__all__` (or key of `__dict__`) that is not a string.
void bad_star_name(PyObject* module, PyObject* entry, bool from_dict) {
  PyObject* name = PyObject_GetAttr(module, names_of.name_);
  if (!name) return;
  if (!PyUnicode_Check(name)) {
    type_error("module __name__ must be a string, not %.100s", name);
  } else {
    PyErr_Format(PyExc_TypeError, "%s in %U.%s must be str, not %.100s", from_dict ? "Key" : "Item", name,
                 from_dict ? "__dict__" : "__all__", Py_TYPE(entry)->tp_name);
  }
  Py_DECREF(name);
}

/// The names `from module import *` binds: a sequence; *from_dict if they are all keys of its `__dict__`.
PyObject* star_names(PyObject* module, bool* from_dict) {
  PyObject* names = nullptr;
  if (_PyObject_LookupAttr(module, names_of.all_, &names) != 0) return names;
  *from_dict = true;
  PyObject* dict = nullptr;
  if (_PyObject_LookupAttr(module, names_of.dict_, &dict) < 0) return nullptr;
  if (!dict) {
    PyErr_SetString(PyExc_ImportError, "from-import-* object has no __dict__ and no __all__");
    return nullptr;
  }
  names = PyMapping_Keys(dict);
  Py_DECREF(dict);
  return names;
}

}  // namespace

int Semantics::import_star(Frame& frame, PyObject* module) {
  bool from_dict = false;
  PyObject* names = star_names(module, &from_dict);
  if (!names) return -1;
  int status = 0;
  for (Py_ssize_t i = 0; status == 0; ++i) {
    PyObject* name = PySequence_GetItem(names, i);
    if (!name) {
      status = PyErr_ExceptionMatches(PyExc_IndexError) ? 0 : -1;
      if (status == 0) PyErr_Clear();
      break;
    }
    if (!PyUnicode_Check(name)) {
      bad_star_name(module, name, from_dict);
      status = -1;
    } else if (!from_dict || PyUnicode_GET_LENGTH(name) == 0 || PyUnicode_READ_CHAR(name, 0) != '_') {
      PyObject* value = get_attr(frame, module, name);
      status = value ? store_name(frame, name, value) : -1;
      Py_XDECREF(value);
    }
    Py_DECREF(name);
  }
  Py_DECREF(names);
  return status;
}

}  // namespace bolt::interp

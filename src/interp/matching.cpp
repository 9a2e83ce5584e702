// interp/matching.cpp
// Semantics of `match`: class and mapping patterns, with CPython's error texts.

#include "interp/errors.h"
#include "interp/special.h"

namespace bolt::interp {

namespace {

/// One attribute of a class pattern. Null without an exception: the subject has no such attribute.
PyObject* match_attribute(Semantics& s, Frame& frame, PyObject* subject, PyObject* cls, PyObject* name,
                          PyObject* seen) {
  const int again = PySet_Contains(seen, name);
  if (again < 0 || (again == 0 && PySet_Add(seen, name) < 0)) return nullptr;
  if (again) {
    PyErr_Format(PyExc_TypeError, "%s() got multiple sub-patterns for attribute %R",
                 reinterpret_cast<PyTypeObject*>(cls)->tp_name, name);
    return nullptr;
  }
  PyObject* value = s.get_attr(frame, subject, name);
  if (!value && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
  return value;
}

/// cls.__match_args__; an empty tuple when absent, and then *match_self for int, str, list and their like.
PyObject* match_args_of(Semantics& s, Frame& frame, PyObject* cls, bool* match_self) {
  PyObject* names = s.get_attr(frame, cls, names_of.match_args_);
  if (!names) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    PyErr_Clear();
    *match_self = PyType_HasFeature(reinterpret_cast<PyTypeObject*>(cls), _Py_TPFLAGS_MATCH_SELF);
    return PyTuple_New(0);
  }
  if (!PyTuple_CheckExact(names)) {
    PyErr_Format(PyExc_TypeError, "%s.__match_args__ must be a tuple (got %s)",
                 reinterpret_cast<PyTypeObject*>(cls)->tp_name, Py_TYPE(names)->tp_name);
    Py_CLEAR(names);
  }
  return names;
}

/// Appends a matched value (stolen, may be null). False: no match or error.
bool append_match(PyObject* values, PyObject* value) {
  if (!value) return false;
  const int status = PyList_Append(values, value);
  Py_DECREF(value);
  return status == 0;
}

bool match_positional(Semantics& s, Frame& frame, PyObject* subject, PyObject* cls, Py_ssize_t n,
                      PyObject* seen, PyObject* values) {
  bool match_self = false;
  PyObject* names = match_args_of(s, frame, cls, &match_self);
  if (!names) return false;
  const Py_ssize_t allowed = match_self ? 1 : PyTuple_GET_SIZE(names);
  bool ok = allowed >= n;
  if (!ok) {
    PyErr_Format(PyExc_TypeError, "%s() accepts %zd positional sub-pattern%s (%zd given)",
                 reinterpret_cast<PyTypeObject*>(cls)->tp_name, allowed, allowed == 1 ? "" : "s", n);
  } else if (match_self) {
    ok = PyList_Append(values, subject) == 0;
  }
  for (Py_ssize_t i = 0; ok && !match_self && i < n; ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (!PyUnicode_CheckExact(name)) {
      type_error("__match_args__ elements must be strings (got %s)", name);
      ok = false;
    } else {
      ok = append_match(values, match_attribute(s, frame, subject, cls, name, seen));
    }
  }
  Py_DECREF(names);
  return ok;
}

/// As a call of the built-in, since whoever watches knows what that reads. -1: error.
int is_instance(Semantics& s, Frame& frame, PyObject* subject, PyObject* cls) {
  static PyObject* const builtins = PyImport_ImportModule("builtins");
  static PyObject* const function = builtins ? PyObject_GetAttrString(builtins, "isinstance") : nullptr;
  if (!function) return PyObject_IsInstance(subject, cls);
  PyObject* args[] = {subject, cls};
  PyObject* answer = s.call(frame, function, args, 2, nullptr);
  const int is = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return is;
}

/// What a pattern that did not match gives: None, or null if an exception is set.
PyObject* no_match() { return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None); }

}  // namespace

PyObject* Semantics::match_class(Frame& frame, PyObject* subject, PyObject* cls, Py_ssize_t positional,
                                 PyObject* names) {
  if (!PyType_Check(cls)) {
    PyErr_SetString(PyExc_TypeError, "called match pattern must be a class");
    return nullptr;
  }
  if (is_instance(*this, frame, subject, cls) <= 0) return no_match();
  PyObject* seen = PySet_New(nullptr);
  PyObject* values = PyList_New(0);
  bool ok = seen && values;
  if (ok && positional) ok = match_positional(*this, frame, subject, cls, positional, seen, values);
  for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(names); ++i) {
    ok = append_match(values, match_attribute(*this, frame, subject, cls, PyTuple_GET_ITEM(names, i), seen));
  }
  PyObject* result = ok ? PyList_AsTuple(values) : no_match();
  Py_XDECREF(seen);
  Py_XDECREF(values);
  return result;
}

namespace {

/// 0: a new key; -1: ValueError for a key that stands twice in the pattern, or another error.
int note_key(PyObject* seen, PyObject* key) {
  const int again = PySet_Contains(seen, key);
  if (again == 0) return PySet_Add(seen, key);
  if (again > 0) PyErr_Format(PyExc_ValueError, "mapping pattern checks duplicate key (%R)", key);
  return -1;
}

/// The values of `keys` as `get(key, missing)` gives them, in `values`. 1 all there, 0 one is missing, -1
/// error.
int collect_values(Semantics& s, Frame& frame, PyObject* get, PyObject* keys, PyObject* missing,
                   PyObject* values) {
  PyObject* seen = PySet_New(nullptr);
  int status = seen ? 1 : -1;
  for (Py_ssize_t i = 0; status > 0 && i < PyTuple_GET_SIZE(keys); ++i) {
    PyObject* args[] = {PyTuple_GET_ITEM(keys, i), missing};
    if (note_key(seen, args[0]) < 0) {
      status = -1;
      break;
    }
    PyObject* value = s.call(frame, get, args, 2, nullptr);
    if (!value || value == missing) {
      status = value ? 0 : -1;
      Py_XDECREF(value);
      break;
    }
    PyTuple_SET_ITEM(values, i, value);
  }
  Py_XDECREF(seen);
  return status;
}

}  // namespace

PyObject* Semantics::match_keys(Frame& frame, PyObject* subject, PyObject* keys) {
  // get(key, default) and not subscription: a defaultdict must not grow by being matched.
  if (PyTuple_GET_SIZE(keys) == 0) return PyTuple_New(0);
  static PyObject* const get_name = PyUnicode_InternFromString("get");
  PyObject* get = get_attr(frame, subject, get_name);
  PyObject* missing = get ? PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type)) : nullptr;
  PyObject* values = missing ? PyTuple_New(PyTuple_GET_SIZE(keys)) : nullptr;
  const int status = values ? collect_values(*this, frame, get, keys, missing, values) : -1;
  Py_XDECREF(get);
  Py_XDECREF(missing);
  if (status > 0) return values;
  Py_XDECREF(values);
  return status == 0 ? Py_NewRef(Py_None) : nullptr;
}

}  // namespace bolt::interp

// interp/errors.cpp
// Raising as CPython's loop does it; see errors.h.

#include "interp/errors.h"

namespace bolt::interp {

namespace {

/// Stores `name` in a raised NameError, where the traceback printer looks for spelling suggestions.
void note_name(PyObject* name) {
  PyObject* exception = take_raised();
  if (PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_NameError))) {
    auto* error = reinterpret_cast<PyNameErrorObject*>(exception);
    if (!error->name) error->name = Py_NewRef(name);
  }
  set_raised(exception);
}

bool is_exception_class(PyObject* object) { return PyExceptionClass_Check(object); }

/// An instance for `raise Class`; checks what the call gave.
PyObject* instantiate(PyObject* cls) {
  PyObject* value = PyObject_CallNoArgs(cls);
  if (!value || PyExceptionInstance_Check(value)) return value;
  PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", cls,
               Py_TYPE(value));
  Py_DECREF(value);
  return nullptr;
}

/// The exception object for what stands after `raise` or `from`; null with a TypeError set.
PyObject* as_exception(PyObject* object, const char* complaint) {
  if (is_exception_class(object)) return instantiate(object);
  if (PyExceptionInstance_Check(object)) return Py_NewRef(object);
  PyErr_SetString(PyExc_TypeError, complaint);
  return nullptr;
}

bool reraise_handled() {
  PyObject* handled = PyErr_GetHandledException();
  if (!handled || handled == Py_None) {
    Py_XDECREF(handled);
    PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
    return false;
  }
  set_raised(handled);
  return true;
}

}  // namespace

PyObject* name_error(PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  PyErr_Format(PyExc_NameError, "name '%.200s' is not defined", text);
  note_name(name);
  return nullptr;
}

PyObject* unbound_error(const Frame& frame, int index) {
  PyCodeObject* code = frame.code();
  PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, index);
  if (index >= code->co_nlocalsplus - code->co_nfreevars) {
    PyErr_Format(
        PyExc_NameError,
        "cannot access free variable '%U' where it is not associated with a value in enclosing scope", name);
    note_name(name);
  } else {
    PyErr_Format(PyExc_UnboundLocalError,
                 "cannot access local variable '%U' where it is not associated with a value", name);
  }
  return nullptr;
}

PyObject* type_error(const char* format, PyObject* culprit) {
  PyErr_Format(PyExc_TypeError, format, Py_TYPE(culprit)->tp_name);
  return nullptr;
}

void complete_attribute_error(PyObject* object, PyObject* name) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return;
  PyObject* raised = take_raised();
  auto* error = reinterpret_cast<PyAttributeErrorObject*>(raised);
  if (PyObject_TypeCheck(raised, reinterpret_cast<PyTypeObject*>(PyExc_AttributeError)) && !error->name &&
      !error->obj) {
    error->name = Py_NewRef(name);
    error->obj = Py_NewRef(object);
  }
  set_raised(raised);
}

PyObject* instance_result(Frame& frame, PyObject* result) {
  if (!result) return nullptr;
  if (result != Py_None) type_error("__init__() should return None, not '%.200s'", result);
  const bool ok = result == Py_None;
  Py_DECREF(result);
  return ok ? Py_NewRef(frame.instance) : nullptr;
}

bool do_raise(PyObject* exception, PyObject* cause) {
  if (!exception) return reraise_handled();
  PyObject* value = as_exception(exception, "exceptions must derive from BaseException");
  if (value && cause) {
    PyObject* fixed = nullptr;
    if (cause != Py_None) fixed = as_exception(cause, "exception causes must derive from BaseException");
    if (cause != Py_None && !fixed) {
      Py_CLEAR(value);
    } else {
      PyException_SetCause(value, fixed);
    }
  }
  // PyErr_SetObject chains __context__ to the exception being handled.
  if (value) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
  Py_XDECREF(value);
  Py_DECREF(exception);
  Py_XDECREF(cause);
  return false;
}

int check_except_type(PyObject* cls) {
  bool valid = true;
  if (PyTuple_Check(cls)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cls); ++i)
      valid &= is_exception_class(PyTuple_GET_ITEM(cls, i)) != 0;
  } else {
    valid = is_exception_class(cls);
  }
  if (valid) return 0;
  PyErr_SetString(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
  return -1;
}

void add_traceback(RawFrame* raw) {
  if (_PyFrame_IsIncomplete(raw)) return;
  // `raw` is the thread's innermost frame; this makes its frame object if there is none yet.
  if (PyFrameObject* object = PyEval_GetFrame()) PyTraceBack_Here(object);
}

void star_args_error(PyObject* callable, PyObject* args) {
  if (Py_TYPE(args)->tp_iter || PySequence_Check(args)) return;
  PyErr_Clear();
  PyObject* name = _PyObject_FunctionStr(callable);
  if (!name) return;
  PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", name,
               Py_TYPE(args)->tp_name);
  Py_DECREF(name);
}

void star_kwargs_error(PyObject* callable, PyObject* kwargs) {
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    PyObject* name = _PyObject_FunctionStr(callable);
    if (!name) return;
    PyErr_Format(PyExc_TypeError, "%U argument after ** must be a mapping, not %.200s", name,
                 Py_TYPE(kwargs)->tp_name);
    Py_DECREF(name);
  } else if (PyErr_ExceptionMatches(PyExc_KeyError)) {
#if !BOLT_PY312
    // A KeyError that the mapping's own code raised is an object already: only C's own are about keywords.
    PyObject* raised = PyThreadState_Get()->curexc_value;
    if (!raised || !PyTuple_Check(raised)) return;
#endif
    PyObject* exception = take_raised();
    PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(exception)->args;
    PyObject* name = nullptr;
    if (args && PyTuple_GET_SIZE(args) == 1) name = _PyObject_FunctionStr(callable);
    if (!name) return set_raised(exception);
    PyErr_Format(PyExc_TypeError, "%U got multiple values for keyword argument '%S'", name,
                 PyTuple_GET_ITEM(args, 0));
    Py_DECREF(name);
    Py_DECREF(exception);
  }
}

}  // namespace bolt::interp

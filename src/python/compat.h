// python/compat.h
// CPython's headers -> one set of names for every version we run on.
//
// Why internal headers: our frames *are* CPython frames. Each Python function we run uses CPython's own
// `_PyInterpreterFrame` record, linked into the thread's frame chain. So `sys._getframe`, `locals()`,
// `super()`, `warnings.warn(stacklevel=)`, `traceback`, `exec` and the garbage collector see exactly what
// they would see had CPython run the function itself, and a suspended generator can be resumed by either
// interpreter.
//
// Every difference between CPython versions that is not an opcode (those are in opcodes_311.def,
// opcodes_312.def) lives in this file, and nowhere else. A new version is one more `#if` island here plus one
// more table.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030D0000
#error "the interpreter has tables for CPython 3.11 and 3.12 only"
#endif

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE
#define BOLT_UNDEF_BUILD_CORE
#endif
#include <internal/pycore_code.h>
#if PY_VERSION_HEX < 0x030C0000
#include <internal/pycore_dict.h>
#endif
#include <internal/pycore_frame.h>
#include <internal/pycore_function.h>
#ifdef BOLT_UNDEF_BUILD_CORE
#undef Py_BUILD_CORE
#undef BOLT_UNDEF_BUILD_CORE
#endif
#include <frameobject.h>
#include <structmember.h>

#define BOLT_PY312 (PY_VERSION_HEX >= 0x030C0000)

namespace bolt {

/// CPython's own frame record; `Frame::raw` points to one.
using RawFrame = _PyInterpreterFrame;
using CodeUnit = _Py_CODEUNIT;

inline PyThreadState* thread_state() { return _PyThreadState_UncheckedGet(); }

/// The innermost frame record of a thread, ours or CPython's.
inline RawFrame*& current_raw(PyThreadState* thread) { return thread->cframe->current_frame; }

inline PyFunctionObject* raw_function(const RawFrame* raw) {
#if BOLT_PY312
  return reinterpret_cast<PyFunctionObject*>(raw->f_funcobj);
#else
  return raw->f_func;
#endif
}

inline void set_raw_function(RawFrame* raw, PyFunctionObject* function) {
#if BOLT_PY312
  raw->f_funcobj = reinterpret_cast<PyObject*>(function);
  raw->return_offset = 0;
#else
  raw->f_func = function;
  raw->is_entry = false;
#endif
}

/// Counts a Python call against the recursion limit; false with RecursionError set.
inline bool count_python_call(PyThreadState* thread) {
#if BOLT_PY312
  if (thread->py_recursion_remaining-- > 0 || thread->recursion_headroom) return true;
  ++thread->py_recursion_remaining;
  ++thread->recursion_headroom;
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
  --thread->recursion_headroom;
  return false;
#else
  if (--thread->recursion_remaining >= 0) return true;
  ++thread->recursion_remaining;
  return Py_EnterRecursiveCall("") == 0;
#endif
}
inline void uncount_python_call(PyThreadState* thread) {
#if BOLT_PY312
  ++thread->py_recursion_remaining;
#else
  ++thread->recursion_remaining;
#endif
}

/// True if the recursion limit allows at least `n` more Python calls.
inline bool has_calls_left(PyThreadState* thread, int n) {
#if BOLT_PY312
  return thread->py_recursion_remaining >= n;
#else
  return thread->recursion_remaining >= n;
#endif
}

/// True while a debugger or coverage tool watches the lines of this thread: such a call is left to CPython,
/// because only its loop emits their events. Profilers see what we run as a part of its caller.
inline bool thread_is_traced(PyThreadState* thread) { return thread->c_tracefunc != nullptr; }

/// The array of an object's own attributes, null entries for those it has not; null: they are in a dict, or
/// there are none. (From 3.12 on the array is behind a tagged pointer: not read.)
inline PyObject** inline_values([[maybe_unused]] PyObject* object) {
#if BOLT_PY312
  return nullptr;
#else
  if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_MANAGED_DICT)) return nullptr;
  return reinterpret_cast<PyObject***>(object)[-4];
#endif
}
/// The index in that array of an attribute with the (interned) name; -1: no object of the class has had it.
inline Py_ssize_t inline_index([[maybe_unused]] PyTypeObject* type, [[maybe_unused]] PyObject* name) {
#if !BOLT_PY312
  PyDictKeysObject* keys = reinterpret_cast<PyHeapTypeObject*>(type)->ht_cached_keys;
  if (!keys || keys->dk_kind == DICT_KEYS_GENERAL) return -1;
  for (Py_ssize_t i = 0; i < keys->dk_nentries; ++i)
    if (DK_UNICODE_ENTRIES(keys)[i].me_key == name) return i;
#endif
  return -1;
}

/// The array keeps the order in which the attributes came: that one is new in it.
inline void note_inline_insertion([[maybe_unused]] PyObject* object, [[maybe_unused]] Py_ssize_t index) {
#if !BOLT_PY312
  _PyDictValues_AddToInsertionOrder(reinterpret_cast<PyDictValues**>(object)[-4], index);
#endif
}

/// The attributes of a class itself; borrowed. (From 3.12 on built-in classes keep theirs per interpreter.)
inline PyObject* type_dict(PyTypeObject* type) {
#if BOLT_PY312
  PyObject* dict = PyType_GetDict(type);
  Py_XDECREF(dict);
  return dict;
#else
  return type->tp_dict;
#endif
}

/// The exception being raised on this thread, normalised; the thread's error is cleared. New reference.
inline PyObject* take_raised() {
#if BOLT_PY312
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (!type) return nullptr;
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
#endif
}

/// Raises `exception` (stolen) as it is, with the traceback it carries.
inline void set_raised(PyObject* exception) {
#if BOLT_PY312
  PyErr_SetRaisedException(exception);
#else
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(exception))), exception,
                PyException_GetTraceback(exception));
#endif
}

/// Holds an exception that may be raised aside, for code that must not meet it.
struct RaisedAside {
  RaisedAside() : exception(PyErr_Occurred() ? take_raised() : nullptr) {}
  ~RaisedAside() {
    if (exception) set_raised(exception);
  }
  RaisedAside(const RaisedAside&) = delete;
  PyObject* const exception;
};

/// CPython's per-code-object slot for extensions.
inline Py_ssize_t request_code_slot(freefunc release) {
#if BOLT_PY312
  return PyUnstable_Eval_RequestCodeExtraIndex(release);
#else
  return _PyEval_RequestCodeExtraIndex(release);
#endif
}
inline int get_code_slot(PyObject* code, Py_ssize_t index, void** value) {
#if BOLT_PY312
  return PyUnstable_Code_GetExtra(code, index, value);
#else
  return _PyCode_GetExtra(code, index, value);
#endif
}
inline int set_code_slot(PyObject* code, Py_ssize_t index, void* value) {
#if BOLT_PY312
  return PyUnstable_Code_SetExtra(code, index, value);
#else
  return _PyCode_SetExtra(code, index, value);
#endif
}

/// A one-digit int: its value fits a long with room to multiply two of them.
inline bool is_small_int(PyObject* value) {
#if BOLT_PY312
  return PyUnstable_Long_IsCompact(reinterpret_cast<PyLongObject*>(value));
#else
  return static_cast<size_t>(Py_SIZE(value) + 1) <= 2;
#endif
}
inline long small_int_value(PyObject* value) {
#if BOLT_PY312
  return static_cast<long>(PyUnstable_Long_CompactValue(reinterpret_cast<PyLongObject*>(value)));
#else
  return static_cast<long>(Py_SIZE(value)) *
         static_cast<long>(reinterpret_cast<PyLongObject*>(value)->ob_digit[0]);
#endif
}

/// Which comparison COMPARE_OP's argument means.
constexpr int compare_operator(int arg) { return BOLT_PY312 ? arg >> 4 : arg; }

/// FOR_ITER's jump when exhausted: 3.12 also steps over the END_FOR that stands at its target.
constexpr int for_iter_skip = BOLT_PY312 ? 1 : 0;

/// PyErr_Clear after something that may have run Python code: an interrupt that was met there comes again.
inline void forget_error() {
  if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  PyErr_Clear();
}

}  // namespace bolt

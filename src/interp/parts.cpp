// interp/parts.cpp
// Parts of opcodes made of Semantics calls: `with`, await, annotations, 3.12's intrinsics. See
// semantics_parts.h.

#include "interp/semantics_parts.h"

#include "interp/errors.h"
#include "interp/native_op.h"
#include "interp/special.h"

namespace bolt::interp {

CallStart begin_with(Semantics& s, Frame& frame, PyObject* manager, bool async, PyObject** exit) {
  PyObject* enter = nullptr;
  int found = s.get_special(frame, manager, async ? names_of.aenter_ : names_of.enter_, &enter);
  if (found <= 0) {
    if (found == 0) {
      type_error(async ? "'%.200s' object does not support the asynchronous context manager protocol"
                       : "'%.200s' object does not support the context manager protocol",
                 manager);
    }
    return {};
  }
  found = s.get_special(frame, manager, async ? names_of.aexit_ : names_of.exit_, exit);
  if (found <= 0) {
    if (found == 0) {
      type_error(
          async ? "'%.200s' object does not support the asynchronous context manager protocol (missed "
                  "__aexit__ method)"
                : "'%.200s' object does not support the context manager protocol (missed __exit__ method)",
          manager);
    }
    Py_DECREF(enter);
    return {};
  }
  const CallStart start = s.start_call(frame, enter, nullptr, 0, nullptr);
  Py_DECREF(enter);
  if (start.failed()) Py_CLEAR(*exit);
  return start;
}

// -- Awaiting
// -----------------------------------------------------------------------------------------------------------

namespace {

/// A generator made by types.coroutine.
bool is_generator_coroutine(PyObject* object) {
  return PyGen_Check(object) &&
         (reinterpret_cast<RawFrame*>(reinterpret_cast<PyGenObject*>(object)->gi_iframe)->f_code->co_flags &
          CO_ITERABLE_COROUTINE);
}

bool is_coroutine(PyObject* object) { return PyCoro_CheckExact(object) || is_generator_coroutine(object); }

}  // namespace

PyObject* Semantics::get_awaitable(Frame& frame, PyObject* object) {
  if (is_coroutine(object)) return Py_NewRef(object);
  PyAsyncMethods* methods = Py_TYPE(object)->tp_as_async;
  unaryfunc await = methods ? methods->am_await : nullptr;
  if (!await) return type_error("object %.100s can't be used in 'await' expression", object);
  PyObject* iterator =
      await == python_slots.await ? call_required(*this, frame, object, names_of.await_, {}) : await(object);
  if (!iterator) return nullptr;
  if (is_coroutine(iterator)) {
    PyErr_SetString(PyExc_TypeError, "__await__() returned a coroutine");
    Py_CLEAR(iterator);
  } else if (!PyIter_Check(iterator)) {
    type_error("__await__() returned non-iterator of type '%.100s'", iterator);
    Py_CLEAR(iterator);
  }
  return iterator;
}

PyObject* get_awaitable(Semantics& s, Frame& frame, PyObject* object, int where) {
  PyObject* iterator = s.get_awaitable(frame, object);
  PyAsyncMethods* methods = Py_TYPE(object)->tp_as_async;
  if (!iterator && where && (!methods || !methods->am_await)) {
    type_error(
        where == 1
            ? "'async with' received an object from __aenter__ that does not implement __await__: %.100s"
            : "'async with' received an object from __aexit__ that does not implement __await__: %.100s",
        object);
  }
  if (!iterator || !PyCoro_CheckExact(iterator)) return iterator;
  PyObject* awaiting = PyObject_GetAttrString(iterator, "cr_await");
  const bool busy = awaiting && awaiting != Py_None;
  Py_XDECREF(awaiting);
  if (busy) {
    PyErr_SetString(PyExc_RuntimeError, "coroutine is being awaited already");
    Py_CLEAR(iterator);
  }
  return iterator;
}

PyObject* Semantics::get_async_iter(Frame& frame, PyObject* object) {
  PyAsyncMethods* methods = Py_TYPE(object)->tp_as_async;
  unaryfunc get = methods ? methods->am_aiter : nullptr;
  if (!get) return type_error("'async for' requires an object with __aiter__ method, got %.100s", object);
  PyObject* iterator =
      get == python_slots.async_iter ? call_required(*this, frame, object, names_of.aiter_, {}) : get(object);
  if (!iterator) return nullptr;
  methods = Py_TYPE(iterator)->tp_as_async;
  if (!methods || !methods->am_anext) {
    type_error("'async for' received an object from __aiter__ that does not implement __anext__: %.100s",
               iterator);
    Py_CLEAR(iterator);
  }
  return iterator;
}

PyObject* Semantics::get_async_next(Frame& frame, PyObject* iterator) {
  PyAsyncMethods* methods = Py_TYPE(iterator)->tp_as_async;
  unaryfunc get = methods ? methods->am_anext : nullptr;
  if (PyAsyncGen_CheckExact(iterator)) return get(iterator);
  if (!get) return type_error("'async for' requires an iterator with __anext__ method, got %.100s", iterator);
  PyObject* next = get == python_slots.async_next ? call_required(*this, frame, iterator, names_of.anext_, {})
                                                  : get(iterator);
  if (!next) return nullptr;
  PyObject* awaitable = get_awaitable(frame, next);
  if (!awaitable) {
    _PyErr_FormatFromCause(PyExc_TypeError, "'async for' received an invalid object from __anext__: %.100s",
                           Py_TYPE(next)->tp_name);
  }
  Py_DECREF(next);
  return awaitable;
}

PyObject* get_yield_from_iter(Semantics& s, Frame& frame, PyObject* object) {
  if (PyCoro_CheckExact(object)) {
    if (frame.code()->co_flags & (CO_COROUTINE | CO_ITERABLE_COROUTINE)) return Py_NewRef(object);
    PyErr_SetString(PyExc_TypeError, "cannot 'yield from' a coroutine object in a non-coroutine generator");
    return nullptr;
  }
  if (PyGen_Check(object)) return Py_NewRef(object);
  return s.get_iter(frame, object);
}

// -- Small things
// ---------------------------------------------------------------------------------------------------------

int setup_annotations(Frame& frame) {
  PyObject* space = frame.namespace_dict();
  if (!space) {
    PyErr_SetString(PyExc_SystemError, "no locals found when setting up annotations");
    return -1;
  }
  PyObject* found = PyObject_GetItem(space, names_of.annotations_);
  if (found) {
    Py_DECREF(found);
    return 0;
  }
  if (!PyErr_ExceptionMatches(PyExc_KeyError)) return -1;
  PyErr_Clear();
  PyObject* fresh = PyDict_New();
  const int status = fresh ? PyObject_SetItem(space, names_of.annotations_, fresh) : -1;
  Py_XDECREF(fresh);
  return status;
}

int print_expression(Semantics& s, Frame& frame, PyObject* value) {
  PyObject* hook = PySys_GetObject("displayhook");
  if (!hook) {
    PyErr_SetString(PyExc_RuntimeError, "lost sys.displayhook");
    return -1;
  }
  Py_INCREF(hook);
  PyObject* result = s.call(frame, hook, &value, 1, nullptr);
  Py_DECREF(hook);
  Py_XDECREF(result);
  return result ? 0 : -1;
}

#if BOLT_PY312

namespace {

enum : int {
  intrinsic_print = 1,
  intrinsic_import_star = 2,
  intrinsic_stop_iteration_error = 3,
  intrinsic_unary_positive = 5,
  intrinsic_list_to_tuple = 6,
};

/// A StopIteration that leaves a generator or coroutine becomes a RuntimeError; anything else stays.
PyObject* stop_iteration_error(Frame& frame, PyObject* exception) {
  const int flags = frame.code()->co_flags;
  const char* text = nullptr;
  if (PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    text = flags & CO_ASYNC_GENERATOR ? "async generator raised StopIteration"
           : flags & CO_COROUTINE     ? "coroutine raised StopIteration"
                                      : "generator raised StopIteration";
  } else if ((flags & CO_ASYNC_GENERATOR) &&
             PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration)) {
    text = "async generator raised StopAsyncIteration";
  }
  if (!text) return Py_NewRef(exception);
  PyObject* message = PyUnicode_FromString(text);
  PyObject* error = message ? PyObject_CallOneArg(PyExc_RuntimeError, message) : nullptr;
  Py_XDECREF(message);
  if (error) {
    PyException_SetCause(error, Py_NewRef(exception));
    PyException_SetContext(error, Py_NewRef(exception));
  }
  return error;
}

}  // namespace

PyObject* intrinsic_1(Semantics& s, Frame& frame, int number, PyObject* value) {
  switch (number) {
    case intrinsic_print: return print_expression(s, frame, value) < 0 ? nullptr : Py_NewRef(Py_None);
    case intrinsic_import_star: return s.import_star(frame, value) < 0 ? nullptr : Py_NewRef(Py_None);
    case intrinsic_stop_iteration_error: return stop_iteration_error(frame, value);
    case intrinsic_unary_positive: return s.unary_op(frame, Unary::positive, value);
    case intrinsic_list_to_tuple: return s.list_to_tuple(frame, value);
    default: return run_native_op(op::CALL_INTRINSIC_1, number, {value});
  }
}

PyObject* intrinsic_2(Frame&, int number, PyObject* first, PyObject* second) {
  return run_native_op(op::CALL_INTRINSIC_2, number, {first, second});
}

#endif

}  // namespace bolt::interp

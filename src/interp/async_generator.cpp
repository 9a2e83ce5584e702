// interp/async_generator.cpp
// The steps are those of CPython's genobject.c.

#include "interp/async_generator.h"

#include "interp/generator.h"
#include "interp/native_op.h"

namespace bolt::interp {

namespace {

/// An object of either of C's two types, which are private to genobject.c.
struct AwaitableObject {
  PyObject_HEAD PyAsyncGenObject* generator;
  PyObject* given;  ///< what is sent; what is thrown, as a tuple, null for aclose()
  int state;
};
enum : int { kInit, kIter, kClosed };

struct ItemObject {
  PyObject_HEAD PyObject* value;
};

AwaitableObject* as_awaitable(PyObject* object) { return reinterpret_cast<AwaitableObject*>(object); }

/// The exception to raise where the body stands; null: C finds out what is meant.
PyObject* exception_of(const AwaitableObject& awaitable) {
  if (!awaitable.given) return PyObject_CallNoArgs(PyExc_GeneratorExit);
  PyObject* const* args = &PyTuple_GET_ITEM(awaitable.given, 0);
  return Py_XNewRef(thrown_exception(args, static_cast<size_t>(PyTuple_GET_SIZE(awaitable.given))));
}

Frame* start_throwing(AwaitableObject& awaitable, PyObject* value) {
  PyObject* generator = reinterpret_cast<PyObject*>(awaitable.generator);
  if (value != Py_None || awaitable.generator->ag_closed || is_delegating(generator)) return nullptr;
  PyObject* exception = exception_of(awaitable);
  Frame* frame = exception ? start_throw(generator, exception) : nullptr;
  Py_XDECREF(exception);
  if (frame && !awaitable.given) awaitable.generator->ag_closed = 1;
  return frame;
}

}  // namespace

Awaitable awaitable_kind(PyObject* object) {
  if (Py_IS_TYPE(object, &_PyAsyncGenASend_Type)) return Awaitable::asend;
  if (!Py_IS_TYPE(object, &_PyAsyncGenAThrow_Type)) return Awaitable::none;
  return as_awaitable(object)->given ? Awaitable::athrow : Awaitable::aclose;
}

PyObject* awaited_generator(PyObject* awaitable) {
  return reinterpret_cast<PyObject*>(as_awaitable(awaitable)->generator);
}
PyObject* awaitable_given(PyObject* awaitable) { return as_awaitable(awaitable)->given; }
int awaitable_state(PyObject* awaitable) { return as_awaitable(awaitable)->state; }
void set_awaitable_state(PyObject* awaitable, int state) { as_awaitable(awaitable)->state = state; }

PyObject* make_awaitable(Awaitable kind, PyObject* generator, PyObject* given) {
  PyTypeObject* type = kind == Awaitable::asend ? &_PyAsyncGenASend_Type : &_PyAsyncGenAThrow_Type;
  auto* made = PyObject_GC_New(AwaitableObject, type);
  if (!made) return nullptr;
  made->generator = reinterpret_cast<PyAsyncGenObject*>(Py_NewRef(generator));
  made->given = Py_XNewRef(given);
  made->state = kInit;
  auto* object = reinterpret_cast<PyObject*>(made);
  PyObject_GC_Track(object);
  return object;
}

Frame* start_awaitable(PyObject* object, PyObject* value, ReturnTo return_to) {
  AwaitableObject& awaitable = *as_awaitable(object);
  PyObject* generator = awaited_generator(object);
  const bool begins = awaitable.state == kInit;
  if (awaitable.state == kClosed || !can_resume(generator)) return nullptr;
  if (begins && awaitable.generator->ag_running_async) return nullptr;
  Frame* frame;
  if (begins && awaitable_kind(object) != Awaitable::asend) {
    frame = start_throwing(awaitable, value);
  } else {
    PyObject* sent = begins && value == Py_None && awaitable.given ? awaitable.given : value;
    const bool just_started = awaitable.generator->ag_frame_state == FRAME_CREATED;
    frame = just_started && sent != Py_None ? nullptr : start_resumption(generator, sent, return_to);
  }
  if (!frame) return nullptr;
  awaitable.state = kIter;
  awaitable.generator->ag_running_async = 1;
  frame->awaitable = Py_NewRef(object);
  frame->return_to = return_to;
  return frame;
}

void close_awaitable(PyObject* awaitable) {
  as_awaitable(awaitable)->generator->ag_running_async = 0;
  set_awaitable_state(awaitable, kClosed);
}

PySendResult end_awaitable(PyObject* object, PySendResult sent, PyObject** result) {
  const bool yields = sent == PYGEN_NEXT;
  if (yields && !is_yielded_item(*result)) return sent;
  const bool closes = awaitable_kind(object) == Awaitable::aclose;
  close_awaitable(object);
  if (yields) {
    PyObject* item = closes ? nullptr : Py_NewRef(yielded_item(*result));
    Py_SETREF(*result, item);
    if (item) return PYGEN_RETURN;
    PyErr_SetString(PyExc_RuntimeError, "async generator ignored GeneratorExit");
    return PYGEN_ERROR;
  }
  if (sent == PYGEN_RETURN) {
    Py_CLEAR(*result);
    PyErr_SetNone(PyExc_StopAsyncIteration);
  }
  const bool over =
      PyErr_ExceptionMatches(PyExc_StopAsyncIteration) || PyErr_ExceptionMatches(PyExc_GeneratorExit);
  if (over) as_awaitable(object)->generator->ag_closed = 1;
  if (!over || !closes) return PYGEN_ERROR;
  PyErr_Clear();
  *result = Py_NewRef(Py_None);
  return PYGEN_RETURN;
}

bool is_yielded_item(PyObject* object) { return Py_IS_TYPE(object, &_PyAsyncGenWrappedValue_Type); }
PyObject* yielded_item(PyObject* wrapped) { return reinterpret_cast<ItemObject*>(wrapped)->value; }

PyObject* wrap_yielded_item(PyObject* value) {
#if BOLT_PY312
  constexpr int kAsyncGenWrap = 4;
  return run_native_op(op::CALL_INTRINSIC_1, kAsyncGenWrap, {value});
#else
  return run_native_op(op::ASYNC_GEN_WRAP, 0, {value});
#endif
}

bool was_asked(PyObject* generator) {
  return reinterpret_cast<PyAsyncGenObject*>(generator)->ag_hooks_inited;
}

PyObject* asks_for_hooks() {
  static PyMethodDef method = {
      "has_asyncgen_hooks",
      [](PyObject*, PyObject*) {
        const PyThreadState* thread = thread_state();
        return Py_NewRef(thread->async_gen_firstiter || thread->async_gen_finalizer ? Py_True : Py_False);
      },
      METH_NOARGS, nullptr};
  static PyObject* const function = PyCFunction_New(&method, nullptr);
  return function;
}

int check_awaitables() {
  const bool as_taken = _PyAsyncGenASend_Type.tp_basicsize == sizeof(AwaitableObject) &&
                        _PyAsyncGenAThrow_Type.tp_basicsize == sizeof(AwaitableObject) &&
                        _PyAsyncGenWrappedValue_Type.tp_basicsize == sizeof(ItemObject);
  if (!as_taken)
    PyErr_SetString(PyExc_SystemError,
                    "torchbolt: an asynchronous generator's objects are laid out otherwise");
  return as_taken ? 0 : -1;
}

}  // namespace bolt::interp

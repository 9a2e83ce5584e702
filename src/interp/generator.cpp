// src/interp/generator.cpp
// Resuming generators and coroutines in our loop; see generator.h.
//
// The steps around a resumption are those of CPython's genobject.c: push the sent value, make the generator's
// own slot for the handled exception the thread's, run, and afterwards either leave the suspended record
// alone or clear it.

#include "interp/generator.h"

#include <utility>

#include "interp/call.h"
#include "interp/run.h"

namespace bolt::interp {

namespace {

RawFrame* record_of(PyGenObject* generator) { return reinterpret_cast<RawFrame*>(generator->gi_iframe); }

extern PyTypeObject interpreted_generator_type;

bool is_resumable_type(PyObject* object) {
  return PyGen_CheckExact(object) || PyCoro_CheckExact(object) ||
         Py_IS_TYPE(object, &interpreted_generator_type);
}

/// A StopIteration must not leave a generator as such (3.12 does this in bytecode).
void replace_stop_iteration([[maybe_unused]] PyObject* generator) {
#if !BOLT_PY312
  if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return;
  _PyErr_FormatFromCause(
      PyExc_RuntimeError, "%s",
      PyCoro_CheckExact(generator) ? "coroutine raised StopIteration" : "generator raised StopIteration");
#endif
}

/// Gives the raised exception the one the generator is handling as its context.
void chain_to_handled() {
  PyObject* exception = take_raised();
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  Py_DECREF(exception);
}

/// The generator has returned or raised: its record goes.
void clear_record(PyGenObject* generator) {
  Py_CLEAR(generator->gi_exc_state.exc_value);
  generator->gi_frame_state = FRAME_CLEARED;
  release_raw(record_of(generator));
}

/// Runs the body from where it stands until it yields, returns or raises.
PySendResult resume(PyGenObject* generator, Frame* frame, Semantics& semantics, bool throwing,
                    PyObject** result) {
  PyThreadState* tstate = thread_state();
  auto* object = reinterpret_cast<PyObject*>(generator);
  Py_INCREF(object);
  generator->gi_exc_state.previous_item = std::exchange(tstate->exc_info, &generator->gi_exc_state);
  if (throwing) chain_to_handled();
  generator->gi_frame_state = FRAME_EXECUTING;
  *result = run_frame(*frame, semantics, throwing);
  tstate->exc_info = std::exchange(generator->gi_exc_state.previous_item, nullptr);
  PySendResult status = PYGEN_NEXT;
  if (!*result || generator->gi_frame_state != FRAME_SUSPENDED) {
    if (!*result) replace_stop_iteration(object);
    status = *result ? PYGEN_RETURN : PYGEN_ERROR;
    generator->gi_frame_state = FRAME_COMPLETED;
    PyObject* error = *result ? nullptr : take_raised();
    clear_record(generator);
    if (error) set_raised(error);
  }
  Py_DECREF(object);
  return status;
}

}  // namespace

bool can_resume(PyObject* object) {
  if (!is_resumable_type(object)) return false;
  const int state = reinterpret_cast<PyGenObject*>(object)->gi_frame_state;
  return (state == FRAME_CREATED || state == FRAME_SUSPENDED) && !thread_is_traced(thread_state());
}

PySendResult resume_generator(PyObject* object, PyObject* value, Semantics& semantics, PyObject** result) {
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  RawFrame* raw = record_of(generator);
  if (generator->gi_frame_state == FRAME_CREATED && value != Py_None) {
    PyErr_Format(PyExc_TypeError, "can't send non-None value to a just-started %s",
                 PyCoro_CheckExact(object) ? "coroutine" : "generator");
    return PYGEN_ERROR;
  }
  const Code* prepared = prepare(raw->f_code);
  if (!prepared) return PYGEN_ERROR;
  raw->localsplus[raw->stacktop++] = Py_NewRef(value);
  Frame* frame = new_generator_frame(object, prepared);
  if (!frame) return PYGEN_ERROR;
  frame->set_pc(frame->pc() + 1);
  return resume(generator, frame, semantics, false, result);
}

PySendResult throw_into_generator(PyObject* object, Semantics& semantics, PyObject** result) {
  auto* generator = reinterpret_cast<PyGenObject*>(object);
  RawFrame* raw = record_of(generator);
  const Code* prepared = prepare(raw->f_code);
  if (!prepared) return PYGEN_ERROR;
  // The loop finds the stack as after a resumption with a value.
  raw->localsplus[raw->stacktop++] = Py_NewRef(Py_None);
  Frame* frame = new_generator_frame(object, prepared);
  if (!frame) return PYGEN_ERROR;
  return resume(generator, frame, semantics, true, result);
}

PySendResult Semantics::send(Frame&, PyObject* receiver, PyObject* value, PyObject** result) {
  if (can_resume(receiver)) return resume_generator(receiver, value, *this, result);
  return PyIter_Send(receiver, value, result);
}

// -- The subtype whose consumers come back to us
// ------------------------------------------------------------------------

namespace {

PySendResult generator_send(PyObject* self, PyObject* value, PyObject** result) {
  Semantics* semantics = current_semantics();
  this_thread().budget =
      0;  // CPython looks at its eval breaker at each resumption: a signal is raised in here
  if (semantics && can_resume(self)) return resume_generator(self, value, *semantics, result);
  return PyGen_Type.tp_as_async->am_send(self, value, result);
}

/// A value, or null: with StopIteration set when `explicit_stop` or the generator returned something.
PyObject* as_step(PySendResult status, PyObject* result, bool explicit_stop) {
  if (status != PYGEN_RETURN) return result;
  if (result == Py_None) {
    if (explicit_stop) PyErr_SetNone(PyExc_StopIteration);
  } else {
    _PyGen_SetStopIterationValue(result);
  }
  Py_DECREF(result);
  return nullptr;
}

PyObject* generator_next(PyObject* self) {
  Semantics* semantics = current_semantics();
  if (!semantics || !can_resume(self)) return PyGen_Type.tp_iternext(self);
  PyObject* result = nullptr;
  const PySendResult status = resume_generator(self, Py_None, *semantics, &result);
  return as_step(status, result, false);
}

PyObject* generator_send_method(PyObject* self, PyObject* value) {
  PyObject* result = nullptr;
  const PySendResult status = generator_send(self, value, &result);
  return as_step(status, result, true);
}

bool is_delegating(PyObject* self) {
  PyObject* target = PyObject_GetAttrString(self, "gi_yieldfrom");
  const bool delegating = target != Py_None;
  Py_XDECREF(target);
  return delegating;
}

PyObject* generator_throw(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  Semantics* semantics = current_semantics();
  const bool simple = nargs == 1 && PyExceptionInstance_Check(args[0]);
  if (!semantics || !simple || !can_resume(self) || is_delegating(self)) {
    // CPython does it on the same record.
    PyObject* method = PyDict_GetItemString(type_dict(&PyGen_Type), "throw");
    PyObject* bound = Py_TYPE(method)->tp_descr_get(method, self, reinterpret_cast<PyObject*>(Py_TYPE(self)));
    PyObject* result =
        bound ? PyObject_Vectorcall(bound, args, static_cast<size_t>(nargs), nullptr) : nullptr;
    Py_XDECREF(bound);
    return result;
  }
  set_raised(Py_NewRef(args[0]));
  PyObject* result = nullptr;
  const PySendResult status = throw_into_generator(self, *semantics, &result);
  return as_step(status, result, true);
}

PyMethodDef generator_methods[] = {
    {"send", generator_send_method, METH_O, "send(value) -> next yielded value, or raise StopIteration."},
    {"throw", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(generator_throw)), METH_FASTCALL,
     "throw(exception) -> next yielded value, or raise StopIteration."},
    {nullptr, nullptr, 0, nullptr},
};

/// What Python code compares with types.GeneratorType.
PyObject* generator_class(PyObject*, void*) { return Py_NewRef(reinterpret_cast<PyObject*>(&PyGen_Type)); }

PyGetSetDef generator_getset[] = {{"__class__", generator_class, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyAsyncMethods generator_async = {nullptr, nullptr, nullptr, generator_send};

PyTypeObject interpreted_generator_type{};

}  // namespace

bool is_interpreted_generator(PyObject* object) { return Py_IS_TYPE(object, &interpreted_generator_type); }

PyObject* make_interpreted_generator(PyFunctionObject* function, PyObject* const* args, size_t nargs,
                                     PyObject* kwnames) {
  PyObject* object = PyObject_Vectorcall(reinterpret_cast<PyObject*>(function), args, nargs, kwnames);
  // Nobody else has seen the fresh object, and both types have the same layout.
  if (object && PyGen_CheckExact(object)) Py_SET_TYPE(object, &interpreted_generator_type);
  return object;
}

int init_generators() {
  PyTypeObject& type = interpreted_generator_type;
  if (type.tp_name) return 0;
  Py_SET_REFCNT(&type, 1);
  type.tp_name = "generator";
  type.tp_base = &PyGen_Type;
  type.tp_basicsize = PyGen_Type.tp_basicsize;
  type.tp_itemsize = PyGen_Type.tp_itemsize;
  type.tp_flags = Py_TPFLAGS_DEFAULT;
  type.tp_iternext = generator_next;
  type.tp_as_async = &generator_async;
  type.tp_methods = generator_methods;
  type.tp_getset = generator_getset;
  return PyType_Ready(&type);
}

}  // namespace bolt::interp

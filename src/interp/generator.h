// interp/generator.h
// Generator objects whose body this interpreter runs, resumed by opcodes or by C code.
//
// A generator is CPython's own object with CPython's own suspended frame (see compat.h), so `gi_frame`,
// `gi_running`, `throw`, `close`, garbage collection and `isinstance(g, types.GeneratorType)` are CPython's.
// Two ways lead into our loop: an instruction resumes a generator (FOR_ITER, SEND, a call of next(), send()
// or throw()), or C code does (`tuple(g)`, `sum(g)`), for which generators made while an observer is in force
// have a subtype of generator with our tp_iternext and methods. Outside of any run_frame such a generator is
// resumed by CPython.
//
// Under an observer an instruction runs the body as a frame of its own loop (start_resumption), so that a run
// may be suspended inside a generator. C code, and instructions of the plain loop, enter another loop.
#pragma once

#include <vector>

#include "interp/frame.h"
#include "interp/semantics.h"

namespace bolt::interp {

/// True if `object` is a suspended or fresh generator, coroutine or async generator we can resume ourselves.
bool can_resume(PyObject* object);
/// Does it wait for what `yield from` or await goes through?
bool is_delegating(PyObject* generator);

/// Has its type what all those have that can be gone on with (generators, coroutines, awaitables)? Hardly any
/// other has, and it is asked at each call and iteration.
inline bool may_be_resumed(PyObject* object) {
  const PyAsyncMethods* methods = Py_TYPE(object)->tp_as_async;
  return methods && (methods->am_await || methods->am_anext || methods->am_send);
}

/// May it be next() or send() of such an object?
inline bool may_resume(PyObject* callable, PyObject* const* args, size_t nargs) {
  if (!nargs) return false;
  if (may_be_resumed(args[0])) return true;
  PyObject* self = PyCFunction_Check(callable) ? PyCFunction_GET_SELF(callable) : nullptr;
  return self && may_be_resumed(self);
}

/// The body of a generator about to go on from where it stands with `value` sent; null without an exception
/// where `object` is none that can_resume, null with one where `value` must be None. The frame wants to be
/// entered. `object` may be the awaitable of an asynchronous generator (async_generator.h).
Frame* start_resumption(PyObject* object, PyObject* value, ReturnTo return_to);

/// As start_resumption, to raise `exception` where the generator stands.
Frame* start_throw(PyObject* generator, PyObject* exception);
/// throw(exception), or 3.11's throw(type, exception, traceback) as contextlib calls it: the exception.
PyObject* thrown_exception(PyObject* const* args, size_t nargs);

/// next(g), g.send(v), g.throw(e): g, borrowed; null for any other call.
PyObject* generator_called(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames);
/// Such a call: the frame of its body. Null without an exception:
/// the call is none of these, or CPython must do it.
Frame* start_generator_call(PyObject* callable, PyObject* const* args, size_t nargs, PyObject* kwnames);

/// The result of such a call, once the body has ended as `status` says with `result` (stolen).
PyObject* next_call_result(PySendResult status, PyObject* result);

/// Around the time a body's frame is on the thread: its handled exception is the thread's.
void begin_resumption(PyThreadState* thread, PyObject* generator);
void leave_resumption(PyThreadState* thread, PyObject* generator);
/// The body has yielded or returned `result`, or raised (null): what CPython does with the object then.
PySendResult end_resumption(PyObject* generator, PyObject* result);
/// generator.throw(): raises frame.thrown where the body stands, its context what the body is handling.
void raise_thrown(Frame* frame);
/// A body that will not go on. An exception that is set stays.
void finish_generator(PyObject* generator);
void finish_body(const Frame& frame);

/// What a generator's record holds; every reference is borrowed. `function` may be null once it has ended.
struct GeneratorState {
  int8_t frame_state = 0;  ///< CPython's FRAME_CREATED, FRAME_SUSPENDED, ...
  /// Of an asynchronous one: was it asked for anything, is it to end, does someone await it?
  bool asked = false, closed = false, running = false;
  int pc = -1;
  PyObject *function = nullptr, *handled = nullptr;
  std::vector<PyObject*> locals, stack;
};
/// Of a generator, or null. `body`: its frame where it is running.
GeneratorState generator_state(PyObject* generator, const Frame* body);
PyCodeObject* generator_code(PyObject* generator);
/// The exception it is handling, borrowed, or null.
PyObject* generator_handled(PyObject* generator);
/// Gives a generator whose body is not on the thread the state of another one with the same code.
void set_generator_state(PyObject* generator, const GeneratorState& state);
/// A generator of `function`, as make_interpreted_generator makes it, with nothing bound: set_generator_state
/// wants to be called next.
PyObject* make_bare_generator(PyObject* function);

/// Generator.send(value) (or next(), value None) in a loop of its own. *result is new; PYGEN_ERROR sets an
/// exception.
PySendResult resume_generator(PyObject* generator, PyObject* value, Semantics& semantics, PyObject** result);

/// Is sending `value` to `receiver` nothing but next(receiver)? Not for generators and coroutines, which C
/// resumes.
bool is_only_advanced(PyObject* receiver, PyObject* value);

/// Calls a generator function and gives the object the subtype whose consumers come back to us.
bool is_interpreted_generator(PyObject* object);
PyObject* make_interpreted_generator(PyFunctionObject* function, PyObject* const* args, size_t nargs,
                                     PyObject* kwnames);

/// Readies the subtypes; call once when the extension is loaded. -1 with an exception set.
int init_generators();

}  // namespace bolt::interp

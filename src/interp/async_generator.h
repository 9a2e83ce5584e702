// interp/async_generator.h
// The awaitables of asynchronous generators (of asend, __anext__, athrow, aclose), whose bodies this
// interpreter runs.
//
// C makes such an object for each thing that the generator is asked for; whoever awaits it resumes the body.
// What C does around that is done here around a frame of our loop: a future that the body awaits is passed
// on, what it yields is the awaitable's value, and its end is StopAsyncIteration. What C refuses, or answers
// without the body, is left to it: then there is no frame.
#pragma once

#include "interp/frame.h"

namespace bolt::interp {

enum class Awaitable : uint8_t { none, asend, athrow, aclose };
Awaitable awaitable_kind(PyObject* object);

/// The parts of one, borrowed; `given` may be null.
PyObject* awaited_generator(PyObject* awaitable);
PyObject* awaitable_given(PyObject* awaitable);
int awaitable_state(PyObject* awaitable);
void set_awaitable_state(PyObject* awaitable, int state);
/// A new one, of which nobody is told (sys.set_asyncgen_hooks).
PyObject* make_awaitable(Awaitable kind, PyObject* generator, PyObject* given);

/// The body about to go on with `value` sent to the awaitable; null: C must do it, or an exception is set.
Frame* start_awaitable(PyObject* awaitable, PyObject* value, ReturnTo return_to);
/// The body has ended as `sent` says with *result: what the awaitable gives.
PySendResult end_awaitable(PyObject* awaitable, PySendResult sent, PyObject** result);
/// The body will not go on. An exception that is set stays.
void close_awaitable(PyObject* awaitable);

/// What `yield x` in the body of an asynchronous generator hands to C: not what it awaits, but an item.
bool is_yielded_item(PyObject* object);
PyObject* yielded_item(PyObject* wrapped);
PyObject* wrap_yielded_item(PyObject* value);

/// Has it been asked for anything? The first time hooks are told.
bool was_asked(PyObject* generator);
/// A function without arguments: has the thread such hooks?
PyObject* asks_for_hooks();

/// Does C lay these objects out as we take it? -1 with an exception set.
int check_awaitables();

}  // namespace bolt::interp

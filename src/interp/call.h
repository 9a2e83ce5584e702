// interp/call.h
// (callable, arguments) -> a frame ready to run, or a finished value.
//
// Argument binding follows CPython's rules and error texts exactly. The proxy type lets Python functions that
// are handed to C code (`sorted(key=f)`, `map(f, ...)`, `functools.reduce(f, ...)`) come back into this
// interpreter.
#pragma once

#include "interp/frame.h"
#include "interp/semantics.h"

namespace bolt::interp {

/// True if we run calls of `callable` ourselves: a plain Python function, not watched by a debugger.
bool is_our_function(PyObject* callable);

/// Binds arguments to a new frame of `function`; null with CPython's TypeError set.
Frame* bind_call(PyFunctionObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames);

/// Unfolds and starts a call by the base rules (what Semantics::start_call does).
CallStart start_call(Semantics& semantics, Frame& frame, PyObject* callable, PyObject* const* args,
                     size_t nargs, PyObject* kwnames);

/// What was started, run to its end in a loop of its own.
PyObject* run_to_end(Semantics& semantics, CallStart start);
/// A call that gives what its frame comes to, where that is not simply the frame's result (a generator).
CallStart to_caller(Semantics& semantics, CallStart start);

/// A callable that stands for `function` towards C code: calling it enters this interpreter under the rules
/// in force on the thread (CPython when there are none); every attribute is the function's. So does asking it
/// for an iterator, where `function` is an iterable instead. New reference.
PyObject* make_interpreted_function(PyObject* function);

/// The function behind such a proxy, borrowed; null for anything else.
PyObject* interpreted_function_target(PyObject* object);

/// Readies what this file's functions need, and the proxy type; call once when the extension is loaded. -1 on
/// error.
int init_calls();
int init_function_proxy();

}  // namespace bolt::interp

// src/interp/generator.h
// Generator objects whose body this interpreter runs, resumed by opcodes or by C code.
//
// A generator is CPython's own object with CPython's own suspended frame (see compat.h), so `gi_frame`,
// `gi_running`, `throw`, `close`, garbage collection and `isinstance(g, types.GeneratorType)` are CPython's.
// Two ways lead into our loop: an opcode resumes a generator (FOR_ITER, SEND: resume_generator), or C code
// does (`tuple(g)`, `sum(g)`), for which generators made while an observer is in force have a subtype of
// generator with our tp_iternext and methods. Outside of any run_frame such a generator is resumed by
// CPython.
#pragma once

#include "interp/frame.h"
#include "interp/semantics.h"

namespace bolt::interp {

/// True if `object` is a suspended or fresh generator, coroutine or async generator we can resume ourselves.
bool can_resume(PyObject* object);

/// Generator.send(value) (or next(), value None) in our loop. *result is new; PYGEN_ERROR sets an exception.
PySendResult resume_generator(PyObject* generator, PyObject* value, Semantics& semantics, PyObject** result);

/// generator.throw(the exception that is set), for a generator that is not delegating. As resume_generator.
PySendResult throw_into_generator(PyObject* generator, Semantics& semantics, PyObject** result);

/// Calls a generator function and gives the object the subtype whose consumers come back to us.
bool is_interpreted_generator(PyObject* object);
PyObject* make_interpreted_generator(PyFunctionObject* function, PyObject* const* args, size_t nargs,
                                     PyObject* kwnames);

/// Readies the subtypes; call once when the extension is loaded. -1 with an exception set.
int init_generators();

}  // namespace bolt::interp

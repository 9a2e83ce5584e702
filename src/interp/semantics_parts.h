// interp/semantics_parts.h
// Parts of opcodes that are too long for a handler and are made of Semantics calls, so no observer overrides
// them.
#pragma once

#include "interp/semantics.h"

namespace bolt::interp {

/// `with manager`: looks up both methods, starts a call of the first; *exit is the bound second one, new
/// unless that failed.
CallStart begin_with(Semantics& semantics, Frame& frame, PyObject* manager, bool async, PyObject** exit);

/// `callable(*args, **kwargs)`: args any iterable, kwargs any mapping or null.
CallStart start_star_call(Semantics& semantics, Frame& frame, PyObject* callable, PyObject* args,
                          PyObject* kwargs);

/// GET_AWAITABLE; `where` 1, 2: the object came from __aenter__, __aexit__ (for the error text).
PyObject* get_awaitable(Semantics& semantics, Frame& frame, PyObject* object, int where);

/// The iterator of `yield from object`.
PyObject* get_yield_from_iter(Semantics& semantics, Frame& frame, PyObject* object);

/// Makes sure the namespace has `__annotations__`.
int setup_annotations(Frame& frame);

/// sys.displayhook(value), for code compiled in "single" mode.
int print_expression(Semantics& semantics, Frame& frame, PyObject* value);

#if BOLT_PY312
/// CALL_INTRINSIC_1 and CALL_INTRINSIC_2.
PyObject* intrinsic_1(Semantics& semantics, Frame& frame, int number, PyObject* value);
PyObject* intrinsic_2(Frame& frame, int number, PyObject* first, PyObject* second);
#endif

}  // namespace bolt::interp

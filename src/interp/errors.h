// interp/errors.h
// The exceptions CPython's loop itself raises, with CPython's exact texts.
#pragma once

#include "interp/frame.h"

namespace bolt::interp {

/// NameError "name 'x' is not defined", with its `name` attribute set (for suggestions). Always null.
PyObject* name_error(PyObject* name);

/// UnboundLocalError, or NameError for a free variable, for slot `index` of the frame's locals. Always null.
PyObject* unbound_error(const Frame& frame, int index);

/// "'x' object is not callable"-style helpers: TypeError whose text ends in the type's name. Always null.
PyObject* type_error(const char* format, PyObject* culprit);

/// If an AttributeError is raised that does not say of what: it was `object.name`. Suggestions come from it.
void complete_attribute_error(PyObject* object, PyObject* name);

/// What the call of an `__init__` frame gives: its instance, if `result` (stolen) is None; otherwise a
/// TypeError.
PyObject* instance_result(Frame& frame, PyObject* result);

/// `raise exception from cause` (either may be null; both stolen). True: re-raised, traceback already
/// complete.
bool do_raise(PyObject* exception, PyObject* cause);

/// TypeError unless `cls` may stand in an `except` clause (or tuple of such). 0 or -1.
int check_except_type(PyObject* cls);

/// Adds the frame in progress to the raised exception's traceback.
void add_traceback(RawFrame* raw);

/// The TypeErrors of `f(*x)` and `f(**x)`.
void star_args_error(PyObject* callable, PyObject* args);
void star_kwargs_error(PyObject* callable, PyObject* kwargs);

}  // namespace bolt::interp

// interp/special.h
// Running special methods written in Python: where python_slots says that an operation would run one, our
// code repeats what CPython's slot function does, with the call going through Semantics::call.
#pragma once

#include <initializer_list>

#include "interp/semantics.h"
#include "python/slots.h"

namespace bolt::interp {

/// Starts a call of type(self).name(self, args...); a frame's result is the call's. Neither value nor frame
/// nor exception: the type has no such attribute.
CallStart start_special(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                        std::initializer_list<PyObject*> args);
/// The value of such a call, which is run to its end.
PyObject* call_special(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                       std::initializer_list<PyObject*> args);

/// Both for a method that the type must have: an exception tells where it has none.
CallStart start_required(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                         std::initializer_list<PyObject*> args);
PyObject* call_required(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                        std::initializer_list<PyObject*> args);

/// descriptor.__get__(object, type) as CPython's slot does it: what the class has is given all three, never
/// bound.
CallStart start_descriptor(Semantics& semantics, Frame& frame, PyObject* descriptor, PyObject* object,
                           PyObject* type);

/// What `descriptor` (found on the class) gives for `object`; only if getter_is_python.
CallStart start_getter(Semantics& semantics, Frame& frame, PyObject* descriptor, PyObject* object);

/// True if taking the entries of `mapping` (`{**mapping}`, `f(**mapping)`) would enter Python code.
bool maps_in_python(PyObject* mapping);

}  // namespace bolt::interp

// guard/leaf.h
// Leaves: immutable values without identity that a run may depend on. They are guarded by value where they
// are read and need no source: None, bool, int, float, complex, str, bytes, Ellipsis, NotImplemented, range,
// slice, torch's dtypes and devices, members of enums, plain object() sentinels, unions of classes
// (int | str), and tuples and frozensets of
// leaves.
#pragma once

#include <string>

#include "guard/py_ref.h"

namespace bolt::guard {

bool is_leaf(PyObject* object);

/// The same value of the same type. Floats are compared bit by bit (0.0 is not -0.0, NaN is NaN).
bool same_leaf(PyObject* a, PyObject* b);

/// repr, shortened; never raises.
std::string short_repr(PyObject* object);

}  // namespace bolt::guard

// guard/leaf.h
// Leaves: immutable values without identity that a run may depend on. They are guarded by value where they
// are read and need no source: None, bool, int, float, complex, str, bytes, Ellipsis, NotImplemented, range,
// slice, torch's dtypes and devices, members of enums, plain object() sentinels, unions of classes
// (int | str), numpy's numbers, and tuples and frozensets of leaves.
#pragma once

#include <set>
#include <string>

#include "python/py_ref.h"

namespace bolt::guard {

bool is_leaf(PyObject* object);

/// Are both one value, of one type? Floats are compared bit by bit (0.0 is not -0.0, NaN is NaN).
bool same_leaf(PyObject* a, PyObject* b);

/// The number or text that an object of a class on top of int, float, complex, str or bytes is, as an object
/// of that type itself. Null: it is of no such class, or with an exception.
PyRef plain_value(PyObject* object);

/// Is this a tuple, torch.Size or slice? What there is to know about one of leaves are its parts.
bool has_parts(PyObject* leaf);
/// Two leaves that differ in nothing but numbers (ints and floats, Python's own or numpy's) and texts: adds
/// where those are, `place` being where the leaves were found.
bool differ_in_numbers(PyObject* a, PyObject* b, const std::string& place, std::set<std::string>& found);

/// What a function may have told of the process: leaves, classes, and lists and tuples of these.
bool is_telling(PyObject* object);
bool tells_the_same(PyObject* a, PyObject* b);

/// repr, shortened; never raises.
std::string short_repr(PyObject* object);

}  // namespace bolt::guard

// observe/calls/numpy_calls.h
// A callable -> is it one of numpy's own functions, which gives numbers for numbers?
//
// `x / np.sqrt(d)`, `np.prod(shape)`, `np.float32(x)`: models compute with numpy where they might with
// `math`. Given numbers alone, such a function is a function of these, and what it gives is followed as what
// one of `math` gives is. Arrays are another matter: they are memory (Lists::tensor_of_array).
#pragma once

#include <Python.h>

namespace bolt::observe {

/// An operation on elements, a class of numbers, or a function that dispatches on arrays. Not what the user
/// made with numpy's tools (np.frompyfunc), which calls the user's code.
bool is_numpys_function(PyObject* callable);

/// Is it one of those that make an array of numbers alone (np.zeros)?
bool makes_array_of_numbers(PyObject* callable);

/// May such a function be given it? Numbers, classes, and tuples and lists of numbers. A text may name a
/// file.
bool holds_numbers_alone(PyObject* object);

}  // namespace bolt::observe

// guard/numpy_numbers.h
// numpy's numbers: leaves, and where they differ between calls followed like Python's. Their arithmetic is
// their own; operators of torch are given the number of Python's that they stand for.
#pragma once

#include "python/py_ref.h"

namespace bolt::guard {

/// Of bools, too.
bool is_numpys(PyTypeObject* type);
/// Integers and floats.
bool is_numpy_number(PyObject* object);
/// np.random's own generator or one that default_rng() makes, not of a class derived from theirs.
bool is_numpy_generator(PyObject* object);
/// int or float: what torch takes it for.
PyTypeObject* pythons_type_of(PyObject* numpy_number);

}  // namespace bolt::guard

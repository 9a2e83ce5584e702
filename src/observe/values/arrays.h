// observe/values/arrays.h
// An operation on numpy's arrays -> operators on the tensors that share their memory, and arrays of these.
//
//   a = t.numpy()      a late value (late.cpp): made again at the region's end, of the tensor t
//   b = np.exp(a) @ w  torchbolt/stand_ins/arrays.py computes a tensor, whose memory b is
//   s = b.sum()        a late number of numpy's, of a tensor without dimensions that nobody writes to
//
// An array from outside is one whose tensor guards make (Lists::tensor_of_array). So writes through arrays
// are writes to tensors. Whatever else reads an array ends the region as it does for other late values, and
// so does an operation that numpy and torch do not agree about, which is tried when it is recorded.
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

// Each gives null without an exception where the operation is not done here.

/// The tensor whose memory an array or number of numpy's is; null: it is none, or not one that is known.
PyRef memory_of_array(World& world, PyObject* object);
/// The array that `numpy`, a method of tensors, gives of the tensor. Null without an exception: not here.
PyObject* array_of_tensor(Recording& recording, Frame& frame, PyObject* numpy, PyObject* tensor);
/// A call of one of numpy's functions or methods, or of t.numpy().
PyObject* array_call(Recording& recording, Frame& frame, PyObject* callable, PyObject* const* args,
                     size_t nargs, PyObject* kwnames);
/// `op`: CPython's number of it. What is written in place is the array itself.
PyObject* array_binary_op(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right);
/// The function of `operator` of that name, as `__add__`.
PyObject* array_operation(Recording& recording, Frame& frame, PyObject* name,
                          std::initializer_list<PyObject*> operands);
PyObject* array_attribute(Recording& recording, Frame& frame, PyObject* array, PyObject* name);
/// The method of the array's class by that name, borrowed; null: it is no array that the region knows, or has
/// no such method.
PyObject* array_method(World& world, PyObject* array, PyObject* name);

}  // namespace bolt::observe

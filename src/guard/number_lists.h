// guard/number_lists.h
// A list of numbers -> the tensor that torch.tensor makes of it, while guards are checked: the program is
// given it like a tensor from outside, so neither the numbers nor how many they are is part of what is
// compiled. An array of numpy's -> the tensor that torch.from_numpy makes of it, in the same way.
#pragma once

#include <Python.h>

namespace bolt::guard {

/// Of int64, or of float64 if there are floats in it, which `floats` says; lists in lists are dimensions.
/// New; null without an exception: other things are in it than such numbers, or none, or lists of several
/// lengths.
PyObject* tensor_of_list(PyObject* list, bool floats);

/// New; null without an exception: torch makes none of it, or warns of doing so.
PyObject* tensor_of_array(PyObject* array);
/// Is it one of numpy's own class?
bool is_array(PyObject* object);

/// How many dimensions such a tensor has at most. Some lists are in themselves.
constexpr int kMostListed = 8;

/// Are ints and floats all that is in it, and in the lists in it?
bool holds_numbers(PyObject* list, int dims = kMostListed);

}  // namespace bolt::guard

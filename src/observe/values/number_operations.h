// observe/values/number_operations.h
// An operation on numbers that differ between calls -> a followed number, or a fact (number_operations.cpp).
// Null without an exception: the operation is not done here.
#pragma once

#include "observe/recording.h"

namespace bolt::observe {

PyObject* size_arithmetic(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right);
PyObject* size_comparison(Recording& recording, Frame& frame, int op, PyObject* left, PyObject* right);
PyObject* number_unary(Recording& recording, Frame& frame, interp::Unary op, PyObject* value);
PyObject* number_call(Recording& recording, Frame& frame, PyObject* callable,
                      const std::vector<PyObject*>& all);
PyObject* item_by_number(Recording& recording, Frame& frame, PyObject* sequence, PyObject* key);
PyObject* call_of_items(Recording& recording, Frame& frame, PyObject* callable, PyObject* sequence);
PyObject* reduction(Recording& recording, Frame& frame, const CFunction& row, PyObject* callable,
                    PyObject* container);

}  // namespace bolt::observe

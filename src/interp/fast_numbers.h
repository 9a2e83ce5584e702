// interp/fast_numbers.h
// Arithmetic and comparison of exact floats and one-digit ints, and items of exact lists, without dispatch.
// "Not mine" is an answer: the caller then takes the general road. Results equal CPython's bit for bit (same
// C operations on the same values).
#pragma once

#include "interp/semantics.h"

namespace bolt::interp {

inline bool both_floats(PyObject* left, PyObject* right) {
  return PyFloat_CheckExact(left) && PyFloat_CheckExact(right);
}

inline bool both_small_ints(PyObject* left, PyObject* right) {
  return PyLong_CheckExact(left) && PyLong_CheckExact(right) && is_small_int(left) && is_small_int(right);
}

/// Null without an exception: not mine.
inline PyObject* fast_binary_op(int op, PyObject* left, PyObject* right) {
  if (both_small_ints(left, right)) {
    const long a = small_int_value(left);
    const long b = small_int_value(right);
    switch (op) {
      case Binary::add:
      case Binary::add + Binary::inplace: return PyLong_FromLong(a + b);
      case Binary::subtract:
      case Binary::subtract + Binary::inplace: return PyLong_FromLong(a - b);
      case Binary::multiply:
      case Binary::multiply + Binary::inplace: return PyLong_FromLong(a * b);
      case Binary::bit_and:
      case Binary::bit_and + Binary::inplace: return PyLong_FromLong(a & b);
      default: return nullptr;
    }
  }
  if (both_floats(left, right)) {
    const double a = PyFloat_AS_DOUBLE(left);
    const double b = PyFloat_AS_DOUBLE(right);
    switch (op) {
      case Binary::add:
      case Binary::add + Binary::inplace: return PyFloat_FromDouble(a + b);
      case Binary::subtract:
      case Binary::subtract + Binary::inplace: return PyFloat_FromDouble(a - b);
      case Binary::multiply:
      case Binary::multiply + Binary::inplace: return PyFloat_FromDouble(a * b);
      default: return nullptr;
    }
  }
  return nullptr;
}

template <class T>
inline int compare_values(int op, T a, T b) {
  switch (op) {
    case Py_LT: return a < b;
    case Py_LE: return a <= b;
    case Py_EQ: return a == b;
    case Py_NE: return a != b;
    case Py_GT: return a > b;
    default: return a >= b;
  }
}

/// 0 or 1; -1: not mine.
inline int fast_compare(int op, PyObject* left, PyObject* right) {
  if (both_small_ints(left, right)) return compare_values(op, small_int_value(left), small_int_value(right));
  if (both_floats(left, right)) return compare_values(op, PyFloat_AS_DOUBLE(left), PyFloat_AS_DOUBLE(right));
  return -1;
}

/// Where a list has the item; null: not mine.
inline PyObject** fast_list_place(PyObject* container, PyObject* key) {
  if (!PyList_CheckExact(container) || !PyLong_CheckExact(key) || !is_small_int(key)) return nullptr;
  const Py_ssize_t length = PyList_GET_SIZE(container);
  Py_ssize_t at = small_int_value(key);
  if (at < 0) at += length;
  return at >= 0 && at < length ? reinterpret_cast<PyListObject*>(container)->ob_item + at : nullptr;
}

}  // namespace bolt::interp

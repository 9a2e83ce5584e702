// src/interp/operators.cpp
// Semantics of operators, comparisons, truth, length, containment and items.
//
// Objects without special methods in Python go to CPython's abstract functions. For the others the rules of
// CPython's abstract.c (which operand is asked first, when the reflected method is tried, what falls back to
// what) are followed step by step, because only then are the methods run by us and in the same order.

#include <cstddef>

#include "interp/code.h"
#include "interp/errors.h"
#include "interp/native_op.h"
#include "interp/special.h"

namespace bolt::interp {

namespace {

using BinaryFunction = PyObject* (*)(PyObject*, PyObject*);

PyObject* native_power(PyObject* left, PyObject* right) { return PyNumber_Power(left, right, Py_None); }
PyObject* native_inplace_power(PyObject* left, PyObject* right) {
  return PyNumber_InPlacePower(left, right, Py_None);
}

// PyNumber_Power takes three and is never used through this.
template <class F>
BinaryFunction as_binary(F function) {
  return reinterpret_cast<BinaryFunction>(reinterpret_cast<void*>(function));
}

struct BinaryInfo {
  BinaryFunction native, native_inplace;
  size_t slot, inplace_slot;  ///< offsets in PyNumberMethods
  const char* symbol;
};

#define BINARY(name, cpython_name, number, stem, function, slot, symbol)                   \
  {number == Binary::power ? native_power : as_binary(PyNumber_##function),                \
   number == Binary::power ? native_inplace_power : as_binary(PyNumber_InPlace##function), \
   offsetof(PyNumberMethods, nb_##slot), offsetof(PyNumberMethods, nb_inplace_##slot), symbol},
const BinaryInfo binary_table[] = {
#include "interp/binary_ops.def"
};
#undef BINARY

binaryfunc slot_of(PyTypeObject* type, size_t offset) {
  if (!type->tp_as_number) return nullptr;
  return *reinterpret_cast<binaryfunc*>(reinterpret_cast<char*>(type->tp_as_number) + offset);
}

/// Calls a C slot; the power slots take a third argument.
PyObject* call_slot(int op, binaryfunc slot, PyObject* left, PyObject* right) {
  if (op == Binary::power)
    return reinterpret_cast<ternaryfunc>(reinterpret_cast<void*>(slot))(left, right, Py_None);
  return slot(left, right);
}

PyObject* not_implemented() { return Py_NewRef(Py_NotImplemented); }

/// As call_special, with NotImplemented for a missing method.
PyObject* call_or_not_implemented(Semantics& s, Frame& frame, PyObject* self, PyObject* name,
                                  PyObject* other) {
  PyObject* result = call_special(s, frame, self, name, {other});
  return result || PyErr_Occurred() ? result : not_implemented();
}

/// True if the right operand's class has its own version of the reflected method. -1 on error.
int overrides_reflected(PyObject* left, PyObject* right, PyObject* name) {
  PyObject* theirs = nullptr;
  if (_PyObject_LookupAttr(reinterpret_cast<PyObject*>(Py_TYPE(right)), name, &theirs) < 0) return -1;
  if (!theirs) return 0;
  PyObject* mine = nullptr;
  int differs = _PyObject_LookupAttr(reinterpret_cast<PyObject*>(Py_TYPE(left)), name, &mine);
  if (differs >= 0) differs = mine ? PyObject_RichCompareBool(mine, theirs, Py_NE) : 1;
  Py_DECREF(theirs);
  Py_XDECREF(mine);
  return differs;
}

/// What CPython's slot function for a Python-level operator does: the method of `left`, or the reflected one
/// of `right`.
PyObject* run_python_slot(Semantics& s, Frame& frame, int op, PyObject* left, PyObject* right) {
  const size_t offset = binary_table[op].slot;
  const binaryfunc python = python_slots.binary[op];
  PyTypeObject* left_type = Py_TYPE(left);
  PyTypeObject* right_type = Py_TYPE(right);
  bool try_right = left_type != right_type && slot_of(right_type, offset) == python;
  if (slot_of(left_type, offset) == python) {
    if (try_right && PyType_IsSubtype(right_type, left_type)) {
      const int overrides = overrides_reflected(left, right, names_of.reflected[op]);
      if (overrides < 0) return nullptr;
      if (overrides) {
        PyObject* result = call_or_not_implemented(s, frame, right, names_of.reflected[op], left);
        if (result != Py_NotImplemented) return result;
        Py_DECREF(result);
        try_right = false;
      }
    }
    PyObject* result = call_or_not_implemented(s, frame, left, names_of.binary[op], right);
    if (result != Py_NotImplemented || right_type == left_type) return result;
    Py_DECREF(result);
  }
  if (try_right) return call_or_not_implemented(s, frame, right, names_of.reflected[op], left);
  return not_implemented();
}

PyObject* run_slot(Semantics& s, Frame& frame, int op, binaryfunc slot, PyObject* left, PyObject* right) {
  if (slot == python_slots.binary[op]) return run_python_slot(s, frame, op, left, right);
  return call_slot(op, slot, left, right);
}

/// The number protocol of `left op right`: the result, or NotImplemented.
PyObject* number_op(Semantics& s, Frame& frame, int op, PyObject* left, PyObject* right) {
  const size_t offset = binary_table[op].slot;
  binaryfunc left_slot = slot_of(Py_TYPE(left), offset);
  binaryfunc right_slot = Py_TYPE(left) == Py_TYPE(right) ? nullptr : slot_of(Py_TYPE(right), offset);
  if (right_slot == left_slot) right_slot = nullptr;
  if (left_slot) {
    if (right_slot && PyType_IsSubtype(Py_TYPE(right), Py_TYPE(left))) {
      PyObject* result = run_slot(s, frame, op, right_slot, left, right);
      if (result != Py_NotImplemented) return result;
      Py_DECREF(result);
      right_slot = nullptr;
    }
    PyObject* result = run_slot(s, frame, op, left_slot, left, right);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  if (right_slot) return run_slot(s, frame, op, right_slot, left, right);
  return not_implemented();
}

/// `left op= right` by the in-place method: the result, or NotImplemented.
PyObject* inplace_number_op(Semantics& s, Frame& frame, int op, PyObject* left, PyObject* right) {
  binaryfunc slot = slot_of(Py_TYPE(left), binary_table[op].inplace_slot);
  if (!slot) return not_implemented();
  if (slot == python_slots.inplace[op]) return call_required(s, frame, left, names_of.inplace[op], {right});
  return call_slot(op, slot, left, right);
}

PyObject* repeat_sequence(ssizeargfunc repeat, PyObject* sequence, PyObject* count) {
  if (!PyIndex_Check(count)) return type_error("can't multiply sequence by non-int of type '%.200s'", count);
  const Py_ssize_t n = PyNumber_AsSsize_t(count, PyExc_OverflowError);
  if (n == -1 && PyErr_Occurred()) return nullptr;
  return repeat(sequence, n);
}

/// `+` and `*` of sequences, after the number protocol gave up. Null without an exception: does not apply.
PyObject* sequence_op(int op, bool inplace, PyObject* left, PyObject* right) {
  PySequenceMethods* left_methods = Py_TYPE(left)->tp_as_sequence;
  PySequenceMethods* right_methods = Py_TYPE(right)->tp_as_sequence;
  if (op == Binary::add && left_methods) {
    binaryfunc concat = inplace ? left_methods->sq_inplace_concat : nullptr;
    if (!concat) concat = left_methods->sq_concat;
    return concat ? concat(left, right) : nullptr;
  }
  if (op != Binary::multiply) return nullptr;
  if (left_methods) {
    ssizeargfunc repeat = inplace ? left_methods->sq_inplace_repeat : nullptr;
    if (!repeat) repeat = left_methods->sq_repeat;
    if (repeat) return repeat_sequence(repeat, left, right);
  }
  if (right_methods && right_methods->sq_repeat)
    return repeat_sequence(right_methods->sq_repeat, right, left);
  return nullptr;
}

PyObject* operand_error(int op, bool inplace, PyObject* left, PyObject* right) {
  const char* symbol = binary_table[op].symbol;
  const char* left_name = Py_TYPE(left)->tp_name;
  const char* right_name = Py_TYPE(right)->tp_name;
  if (inplace) {
    PyErr_Format(PyExc_TypeError, "unsupported operand type(s) for %.100s=: '%.100s' and '%.100s'",
                 op == Binary::power ? "**" : symbol, left_name, right_name);
  } else {
    PyErr_Format(PyExc_TypeError, "unsupported operand type(s) for %.100s: '%.100s' and '%.100s'", symbol,
                 left_name, right_name);
  }
  return nullptr;
}

bool has_python_slot(int op, bool inplace, PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (!is_heap_type(type)) return false;
  if (slot_of(type, binary_table[op].slot) == python_slots.binary[op]) return true;
  return inplace && slot_of(type, binary_table[op].inplace_slot) == python_slots.inplace[op];
}

}  // namespace

PyObject* Semantics::binary_op(Frame& frame, int op, PyObject* left, PyObject* right) {
  const bool inplace = op >= Binary::inplace;
  const int base = inplace ? op - Binary::inplace : op;
  const BinaryInfo& info = binary_table[base];
  if (!has_python_slot(base, inplace, left) && !has_python_slot(base, false, right)) {
    return (inplace ? info.native_inplace : info.native)(left, right);
  }
  if (inplace) {
    PyObject* result = inplace_number_op(*this, frame, base, left, right);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  PyObject* result = number_op(*this, frame, base, left, right);
  if (result != Py_NotImplemented) return result;
  Py_DECREF(result);
  result = sequence_op(base, inplace, left, right);
  if (result || PyErr_Occurred()) return result;
  return operand_error(base, inplace, left, right);
}

PyObject* Semantics::unary_op(Frame& frame, Unary op, PyObject* value) {
  PyNumberMethods* number = is_heap_type(Py_TYPE(value)) ? Py_TYPE(value)->tp_as_number : nullptr;
  switch (op) {
    case Unary::negative:
      if (number && number->nb_negative == python_slots.negative) {
        return call_required(*this, frame, value, names_of.neg_, {});
      }
      return PyNumber_Negative(value);
    case Unary::positive:
      if (number && number->nb_positive == python_slots.positive) {
        return call_required(*this, frame, value, names_of.pos_, {});
      }
      return PyNumber_Positive(value);
    case Unary::invert:
      if (number && number->nb_invert == python_slots.invert) {
        return call_required(*this, frame, value, names_of.invert_, {});
      }
      return PyNumber_Invert(value);
    default: {
      const int is_true = truth(frame, value);
      return is_true < 0 ? nullptr : PyBool_FromLong(!is_true);
    }
  }
}

// -- Comparison
// -------------------------------------------------------------------------------------------------------

namespace {

PyObject* run_compare_slot(Semantics& s, Frame& frame, richcmpfunc slot, PyObject* self, PyObject* other,
                           int op) {
  if (slot == python_slots.compare)
    return call_or_not_implemented(s, frame, self, names_of.compare[op], other);
  return slot(self, other, op);
}

PyObject* compare_in_order(Semantics& s, Frame& frame, int op, PyObject* left, PyObject* right) {
  richcmpfunc left_slot = Py_TYPE(left)->tp_richcompare;
  richcmpfunc right_slot = Py_TYPE(right)->tp_richcompare;
  bool reflected_tried = false;
  if (right_slot && Py_TYPE(left) != Py_TYPE(right) && PyType_IsSubtype(Py_TYPE(right), Py_TYPE(left))) {
    reflected_tried = true;
    PyObject* result = run_compare_slot(s, frame, right_slot, right, left, _Py_SwappedOp[op]);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  if (left_slot) {
    PyObject* result = run_compare_slot(s, frame, left_slot, left, right, op);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  if (right_slot && !reflected_tried) {
    PyObject* result = run_compare_slot(s, frame, right_slot, right, left, _Py_SwappedOp[op]);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  if (op == Py_EQ) return PyBool_FromLong(left == right);
  if (op == Py_NE) return PyBool_FromLong(left != right);
  static const char* const symbols[] = {"<", "<=", "==", "!=", ">", ">="};
  PyErr_Format(PyExc_TypeError, "'%s' not supported between instances of '%.100s' and '%.100s'", symbols[op],
               Py_TYPE(left)->tp_name, Py_TYPE(right)->tp_name);
  return nullptr;
}

}  // namespace

PyObject* Semantics::compare(Frame& frame, int op, PyObject* left, PyObject* right) {
  if (Py_TYPE(left)->tp_richcompare != python_slots.compare &&
      Py_TYPE(right)->tp_richcompare != python_slots.compare) {
    return PyObject_RichCompare(left, right, op);
  }
  if (Py_EnterRecursiveCall(" in comparison")) return nullptr;
  PyObject* result = compare_in_order(*this, frame, op, left, right);
  Py_LeaveRecursiveCall();
  return result;
}

bool Semantics::is_same(Frame&, PyObject* left, PyObject* right) { return left == right; }

int Semantics::exception_matches(Frame&, PyObject* exception, PyObject* cls) {
  return PyErr_GivenExceptionMatches(exception, cls);
}

PyObject* Semantics::split_group(Frame&, PyObject* group, PyObject* cls) {
  return run_native_op(op::CHECK_EG_MATCH, 0, {group, cls}, 2);
}

// -- Truth, length, containment
// ---------------------------------------------------------------------------------------

Py_ssize_t Semantics::length(Frame& frame, PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  const bool python = (type->tp_as_sequence && type->tp_as_sequence->sq_length == python_slots.length) ||
                      (type->tp_as_mapping && type->tp_as_mapping->mp_length == python_slots.length);
  if (!python) return PyObject_Size(value);
  PyObject* result = call_required(*this, frame, value, names_of.len_, {});
  if (!result) return -1;
  read_number(frame, result);
  PyObject* index = PyNumber_Index(result);
  Py_DECREF(result);
  if (!index) return -1;
  // A negative number is a ValueError whatever its size; one too large is an OverflowError.
  const bool negative = _PyLong_Sign(index) < 0;
  if (negative) PyErr_SetString(PyExc_ValueError, "__len__() should return >= 0");
  const Py_ssize_t size = negative ? -1 : PyNumber_AsSsize_t(index, PyExc_OverflowError);
  Py_DECREF(index);
  return size;
}

int Semantics::truth(Frame& frame, PyObject* value) {
  if (value == Py_True) return 1;
  if (value == Py_False || value == Py_None) return 0;
  PyTypeObject* type = Py_TYPE(value);
  if (!is_heap_type(type)) return PyObject_IsTrue(value);
  inquiry boolean = type->tp_as_number ? type->tp_as_number->nb_bool : nullptr;
  if (boolean == python_slots.boolean) {
    PyObject* result = call_special(*this, frame, value, names_of.bool_, {});
    if (!result) return PyErr_Occurred() ? -1 : PyObject_IsTrue(value);
    const int is_true = PyBool_Check(result) ? result == Py_True : -1;
    if (is_true < 0) {
      PyErr_Format(PyExc_TypeError, "__bool__ should return bool, returned %s", Py_TYPE(result)->tp_name);
    }
    Py_DECREF(result);
    return is_true;
  }
  if (!boolean && type->tp_as_mapping && type->tp_as_mapping->mp_length == python_slots.length) {
    const Py_ssize_t size = length(frame, value);
    return size < 0 ? -1 : size > 0;
  }
  return PyObject_IsTrue(value);
}

int Semantics::contains(Frame& frame, PyObject* container, PyObject* value) {
  PySequenceMethods* methods = Py_TYPE(container)->tp_as_sequence;
  if (!methods || methods->sq_contains != python_slots.contains) return PySequence_Contains(container, value);
  PyObject* method = _PyType_Lookup(Py_TYPE(container), names_of.contains_);
  if (!method || method == Py_None) return PySequence_Contains(container, value);
  PyObject* result = call_special(*this, frame, container, names_of.contains_, {value});
  if (!result) return -1;
  const int found = truth(frame, result);
  Py_DECREF(result);
  return found;
}

// -- Items
// ------------------------------------------------------------------------------------------------------------

PyObject* Semantics::get_item(Frame& frame, PyObject* container, PyObject* key) {
  PyMappingMethods* methods = Py_TYPE(container)->tp_as_mapping;
  if (methods && methods->mp_subscript == python_slots.get_item) {
    return call_required(*this, frame, container, names_of.getitem_, {key});
  }
  return PyObject_GetItem(container, key);
}

int Semantics::set_item(Frame& frame, PyObject* container, PyObject* key, PyObject* value) {
  PyMappingMethods* methods = Py_TYPE(container)->tp_as_mapping;
  if (!methods || methods->mp_ass_subscript != python_slots.set_item)
    return PyObject_SetItem(container, key, value);
  PyObject* result = call_required(*this, frame, container, names_of.setitem_, {key, value});
  Py_XDECREF(result);
  return result ? 0 : -1;
}

int Semantics::delete_item(Frame& frame, PyObject* container, PyObject* key) {
  PyMappingMethods* methods = Py_TYPE(container)->tp_as_mapping;
  if (!methods || methods->mp_ass_subscript != python_slots.set_item) return PyObject_DelItem(container, key);
  PyObject* result = call_required(*this, frame, container, names_of.delitem_, {key});
  Py_XDECREF(result);
  return result ? 0 : -1;
}

}  // namespace bolt::interp

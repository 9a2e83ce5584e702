// interp/operators.cpp
// Semantics of unary operators, truth, length, containment and items. Operators of two operands and
// comparisons are in operands.cpp.
//
// Objects without special methods in Python go to CPython's abstract functions. For the others the rules of
// CPython's abstract.c are followed step by step, because only then are the methods run by us and in the same
// order.

#include <cstddef>
#include <utility>

#include "interp/call.h"
#include "interp/code.h"
#include "interp/fast_numbers.h"
#include "interp/native_op.h"
#include "interp/special.h"

namespace bolt::interp {

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

CallStart Semantics::start_get_item(Frame& frame, PyObject* container, PyObject* key) {
  if (PyObject** place = fast_list_place(container, key)) return {Py_NewRef(*place), nullptr};
  PyMappingMethods* methods = Py_TYPE(container)->tp_as_mapping;
  if (methods && methods->mp_subscript == python_slots.get_item)
    return start_required(*this, frame, container, names_of.getitem_, {key});
  return {PyObject_GetItem(container, key), nullptr};
}

PyObject* Semantics::get_item(Frame& frame, PyObject* container, PyObject* key) {
  return run_to_end(*this, start_get_item(frame, container, key));
}

int Semantics::set_item(Frame& frame, PyObject* container, PyObject* key, PyObject* value) {
  if (PyObject** place = fast_list_place(container, key)) {
    Py_DECREF(std::exchange(*place, Py_NewRef(value)));
    return 0;
  }
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

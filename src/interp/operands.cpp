// interp/operands.cpp
// (operator, left, right) -> which operand's method answers: binary operators and comparisons.
//
// Operands without such methods in Python go to CPython's abstract functions. For the others the rules of
// CPython's abstract.c and typeobject.c (which operand is asked first, when the reflected method is tried,
// what falls back to what) are followed step by step, because only then are the methods run by us and in the
// same order.
//
// A method in Python is a frame for the loop to run. While it runs the operands stay on the stack, and the
// frame's return_to says who was asked: that is all that is needed to go on if it returns NotImplemented. The
// order of those ReturnTo is the order of asking: in_place, then either right_first and left_last or left and
// right.

#include <cstddef>

#include "interp/call.h"
#include "interp/errors.h"
#include "interp/fast_numbers.h"
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
#include "python/binary_ops.def"
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

/// One operator at work, and who was asked last (ReturnTo::entry: nobody).
struct Operands {
  Semantics& s;
  Frame& frame;
  PyObject* left;
  PyObject* right;
  ReturnTo asked = ReturnTo::entry;

  bool left_asked() const { return asked >= ReturnTo::left; }
  bool right_asked() const { return asked == ReturnTo::right_first || asked >= ReturnTo::left_last; }
  bool of_one_type() const { return Py_TYPE(left) == Py_TYPE(right); }
  bool right_is_subtype() const { return !of_one_type() && PyType_IsSubtype(Py_TYPE(right), Py_TYPE(left)); }

  /// Asks `self`, by its method in Python.
  CallStart ask(ReturnTo who, PyObject* self, PyObject* name, PyObject* other) {
    return answer_of(who, start_special(s, frame, self, name, {other}));
  }
  /// As ask, of a method that may be no function of the class: one that cannot be bound is none.
  CallStart ask_if_bound(ReturnTo who, PyObject* self, PyObject* name, PyObject* other) {
    PyObject* method = lookup_special(self, name);
    if (!method) PyErr_Clear();
    const CallStart start = method ? s.start_call(frame, method, &other, 1, nullptr) : CallStart();
    Py_XDECREF(method);
    return answer_of(who, to_caller(s, start));
  }
  CallStart answer_of(ReturnTo who, CallStart start) {
    asked = who;
    if (start.frame) start.frame->return_to = who;
    if (start.failed() && !PyErr_Occurred()) start.value = Py_NewRef(Py_NotImplemented);
    return start;
  }
};

/// The operator is done, or a frame will tell; otherwise the next one is to be asked.
bool is_answer(const CallStart& start) {
  if (start.frame || start.value != Py_NotImplemented) return true;
  Py_DECREF(start.value);
  return false;
}

/// The rest of an operator, in loops of their own.
template <class GoOn>
PyObject* run_operator(Semantics& s, CallStart start, GoOn go_on) {
  while (start.frame) {
    const ReturnTo asked = start.frame->return_to;
    start = {run_to_end(s, start), nullptr};
    if (!is_answer(start)) start = go_on(asked);
  }
  return start.value;
}

// -- Binary operators
// -------------------------------------------------------------------------------------------------

CallStart ask_left(Operands& o, int op, binaryfunc slot, ReturnTo who) {
  if (slot == python_slots.binary[op]) return o.ask(who, o.left, names_of.binary[op], o.right);
  o.asked = who;
  return {call_slot(op, slot, o.left, o.right), nullptr};
}

CallStart ask_right(Operands& o, int op, binaryfunc slot, ReturnTo who) {
  if (slot == python_slots.binary[op]) return o.ask(who, o.right, names_of.reflected[op], o.left);
  o.asked = who;
  return {call_slot(op, slot, o.left, o.right), nullptr};
}

CallStart ask_in_place(Operands& o, int op, binaryfunc slot) {
  if (slot != python_slots.inplace[op]) return {call_slot(op, slot, o.left, o.right), nullptr};
  CallStart start = start_required(o.s, o.frame, o.left, names_of.inplace[op], {o.right});
  if (start.frame) start.frame->return_to = ReturnTo::in_place;
  return start;
}

/// Is the right operand asked before the left one? -1 on error.
int right_goes_first(const Operands& o, int op, binaryfunc left_slot, binaryfunc right_slot) {
  if (!right_slot || !o.right_is_subtype()) return 0;
  if (left_slot != right_slot) return 1;
  return right_slot == python_slots.binary[op] ? overrides_reflected(o.left, o.right, names_of.reflected[op])
                                               : 0;
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

/// Whoever comes after `o.asked`.
CallStart next_operand(Operands o, int op, bool inplace) {
  const size_t offset = binary_table[op].slot;
  const binaryfunc left_slot = slot_of(Py_TYPE(o.left), offset);
  binaryfunc right_slot = o.of_one_type() ? nullptr : slot_of(Py_TYPE(o.right), offset);
  // One function of C in both slots would give the same answer twice, so that it is asked once.
  if (right_slot == left_slot && right_slot != python_slots.binary[op]) right_slot = nullptr;
  CallStart start;
  if (inplace && o.asked == ReturnTo::entry) {
    const binaryfunc slot = slot_of(Py_TYPE(o.left), binary_table[op].inplace_slot);
    if (slot && is_answer(start = ask_in_place(o, op, slot))) return start;
  }
  if (!o.left_asked() && o.asked != ReturnTo::right_first) {
    const int first = right_goes_first(o, op, left_slot, right_slot);
    if (first < 0) return {};
    if (first && is_answer(start = ask_right(o, op, right_slot, ReturnTo::right_first))) return start;
  }
  if (left_slot && !o.left_asked()) {
    const ReturnTo who = o.right_asked() ? ReturnTo::left_last : ReturnTo::left;
    if (is_answer(start = ask_left(o, op, left_slot, who))) return start;
  }
  if (right_slot && !o.right_asked() && is_answer(start = ask_right(o, op, right_slot, ReturnTo::right)))
    return start;
  start.value = sequence_op(op, inplace, o.left, o.right);
  if (start.failed() && !PyErr_Occurred()) operand_error(op, inplace, o.left, o.right);
  return start;
}

bool has_python_slot(int op, bool inplace, PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  if (!is_heap_type(type)) return false;
  if (slot_of(type, binary_table[op].slot) == python_slots.binary[op]) return true;
  return inplace && slot_of(type, binary_table[op].inplace_slot) == python_slots.inplace[op];
}

}  // namespace

CallStart Semantics::start_binary_op(Frame& frame, int op, PyObject* left, PyObject* right) {
  if (PyObject* value = fast_binary_op(op, left, right)) return {value, nullptr};
  const bool inplace = op >= Binary::inplace;
  const int base = inplace ? op - Binary::inplace : op;
  const BinaryInfo& info = binary_table[base];
  if (!has_python_slot(base, inplace, left) && !has_python_slot(base, false, right)) {
    return {(inplace ? info.native_inplace : info.native)(left, right), nullptr};
  }
  return next_operand({*this, frame, left, right}, base, inplace);
}

CallStart Semantics::go_on_binary_op(Frame& frame, int op, PyObject* left, PyObject* right, ReturnTo asked) {
  return next_operand({*this, frame, left, right, asked}, op % Binary::inplace, op >= Binary::inplace);
}

PyObject* Semantics::finish_binary_op(Frame& frame, int op, PyObject* left, PyObject* right,
                                      CallStart start) {
  return run_operator(*this, start,
                      [&](ReturnTo asked) { return go_on_binary_op(frame, op, left, right, asked); });
}

// -- Comparison
// -------------------------------------------------------------------------------------------------------

namespace {

CallStart ask_compared(Operands& o, int op, bool right, ReturnTo who) {
  PyObject* self = right ? o.right : o.left;
  PyObject* other = right ? o.left : o.right;
  if (right) op = _Py_SwappedOp[op];
  const richcmpfunc slot = Py_TYPE(self)->tp_richcompare;
  if (slot == python_slots.compare) {
    PyObject* method = _PyType_Lookup(Py_TYPE(self), names_of.compare[op]);
    const bool is_usual = method && PyType_HasFeature(Py_TYPE(method), Py_TPFLAGS_METHOD_DESCRIPTOR);
    return is_usual ? o.ask(who, self, names_of.compare[op], other)
                    : o.ask_if_bound(who, self, names_of.compare[op], other);
  }
  o.asked = who;
  return {slot(self, other, op), nullptr};
}

/// Whoever comes after `o.asked`; by default objects are equal to themselves.
CallStart next_compared(Operands o, int op) {
  const bool right_can = Py_TYPE(o.right)->tp_richcompare != nullptr;
  CallStart start;
  if (o.asked == ReturnTo::entry && right_can && o.right_is_subtype() &&
      is_answer(start = ask_compared(o, op, true, ReturnTo::right_first)))
    return start;
  if (Py_TYPE(o.left)->tp_richcompare && !o.left_asked()) {
    const ReturnTo who = o.right_asked() ? ReturnTo::left_last : ReturnTo::left;
    if (is_answer(start = ask_compared(o, op, false, who))) return start;
  }
  if (right_can && !o.right_asked() && is_answer(start = ask_compared(o, op, true, ReturnTo::right)))
    return start;
  if (op == Py_EQ) return {PyBool_FromLong(o.left == o.right), nullptr};
  if (op == Py_NE) return {PyBool_FromLong(o.left != o.right), nullptr};
  static const char* const symbols[] = {"<", "<=", "==", "!=", ">", ">="};
  PyErr_Format(PyExc_TypeError, "'%s' not supported between instances of '%.100s' and '%.100s'", symbols[op],
               Py_TYPE(o.left)->tp_name, Py_TYPE(o.right)->tp_name);
  return {};
}

}  // namespace

CallStart Semantics::start_compare(Frame& frame, int op, PyObject* left, PyObject* right) {
  if (const int known = fast_compare(op, left, right); known >= 0)
    return {Py_NewRef(known ? Py_True : Py_False), nullptr};
  if (Py_TYPE(left)->tp_richcompare != python_slots.compare &&
      Py_TYPE(right)->tp_richcompare != python_slots.compare) {
    return {PyObject_RichCompare(left, right, op), nullptr};
  }
  return go_on_compare(frame, op, left, right, ReturnTo::entry);
}

CallStart Semantics::go_on_compare(Frame& frame, int op, PyObject* left, PyObject* right, ReturnTo asked) {
  if (Py_EnterRecursiveCall(" in comparison")) return {};
  const CallStart start = next_compared({*this, frame, left, right, asked}, op);
  Py_LeaveRecursiveCall();
  return start;
}

PyObject* Semantics::finish_compare(Frame& frame, int op, PyObject* left, PyObject* right, CallStart start) {
  return run_operator(*this, start,
                      [&](ReturnTo asked) { return go_on_compare(frame, op, left, right, asked); });
}

}  // namespace bolt::interp

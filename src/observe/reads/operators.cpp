// observe/reads/operators.cpp
// Operators, comparisons, truth, length and formatting -> guards on what the operands show of themselves,
// notes of what is written to them, then the operation itself, which the base class does.

#include <algorithm>

#include "observe/calls/controls.h"
#include "observe/ends/expectations.h"
#include "observe/reads/membership.h"
#include "observe/recording.h"
#include "observe/values/arrays.h"
#include "observe/values/late.h"
#include "observe/values/number_operations.h"
#include "python/slots.h"

namespace bolt::observe {

using interp::CallStart;
using interp::Semantics;

void Recording::note_special(PyObject* object, PyObject* name) {
  if (is_heap_type(Py_TYPE(object))) world.type_attr(Py_TYPE(object), name);
}

void Recording::mark(Frame& frame) {
  const Frame& users =
      *users_frame(&frame);  // whoever reads of an operator wants to find it in their program
  const auto& [file, function] = users.prepared->names;
  if (!function) {
    users.prepared->names[0] = PyUnicode_AsUTF8(users.code()->co_filename);
    users.prepared->names[1] = PyUnicode_AsUTF8(users.code()->co_name);
  }
  hooks_.instruction(file, function, users.lineno());
}

void Recording::end_if_overridden(Frame& frame, PyObject* object) {
  if (on && guard::overrides_torch(object)) end_here(frame, {Why::torch_function, Py_TYPE(object)->tp_name});
}

void Recording::touch(Frame& frame, PyObject* object, bool deep) {
  if (!on || guard::is_plain_tensor(object)) return;
  world.lengths.read_if_open(object);
  if (is_heap_type(Py_TYPE(object))) {  // others do not know torch
    end_if_overridden(frame, object);
    if (!on || guard::is_tensor(object)) return;
  }
  if (guard::is_leaf(object)) return;
  // A container that the run made may hold others.
  if (deep && !world.find(object)) return world.read_deep(object);
  if (!world.find(object)) return;
  if (is_understood_container(object)) {
    deep ? world.read_deep(object) : world.read_whole(object);
    return;
  }
  if (is_partial(object) || PyMethod_Check(object)) return note_callable(object);
  if (PyDictViewSet_Check(object) || PyDictValues_Check(object)) {
    constexpr auto dict = static_cast<Py_ssize_t>(offsetof(_PyDictViewObject, dv_dict));
    return touch(frame, world.field(object, dict, interned<"mapping">()), deep);
  }
  static PyTypeObject* const generators = native_type("torch._C", "Generator");
  if (Py_IS_TYPE(object, generators) && hooks_.names_generators()) return world.found_generator(object);
  // One of a class of the user's is no opaque object, and yet operators must be given that of each call.
  if (!is_opaque(object) && !PyObject_TypeCheck(object, generators)) return;
  end_here(frame, {Why::read, Py_TYPE(object)->tp_name});
}

CallStart Recording::start_binary_op(Frame& frame, int op, PyObject* left, PyObject* right) {
  const int kind = op % interp::Binary::inplace;
  if (PyObject* made = array_binary_op(*this, frame, op, left, right); made || PyErr_Occurred())
    return {made, nullptr};
  if (on && world.follows()) {
    PyObject* value = size_arithmetic(*this, frame, op, left, right);
    if (value || PyErr_Occurred()) return {value, nullptr};
  }
  if (on && PyUnicode_CheckExact(left)) {
    PyObject* text = late_operation(*this, kind, left, right);
    if (text || PyErr_Occurred()) return {text, nullptr};
  }
  const bool in_place = op >= interp::Binary::inplace;
  if (on && kind == interp::Binary::add && !(in_place && PyList_Check(left))) {
    PyObject* joined = world.lengths.concatenated(left, right);
    if (joined || PyErr_Occurred()) return {joined, nullptr};
  }
  // Sequences that are joined or repeated, and dicts, keep the numbers in them as they are.
  const bool joins = kind == interp::Binary::add || kind == interp::Binary::multiply;
  auto is_dict = [](PyObject* each) { return PyDict_CheckExact(each) || PyODict_CheckExact(each); };
  const bool merges = kind == interp::Binary::bit_or && is_dict(left) && is_dict(right);
  for (PyObject* operand : {left, right}) {
    if (on && merges) world.followed_keys.use_keys(operand);
    if (on && !merges && !(joins && is_sequence(operand)))
      world.use(operand);
    else if (on && !(in_place && operand == left))  // what is added to in place is not read
      world.own_numbers_of(operand);
  }
  if (!on || (guard::is_leaf(left) && guard::is_leaf(right)))
    return Semantics::start_binary_op(frame, op, left, right);
  note_special(left, names_of.binary[kind]);
  if (in_place) note_special(left, names_of.inplace[kind]);
  note_special(right, names_of.reflected[kind]);
  // Formatting shows all that is inside, and a dictionary takes sequences of pairs apart.
  touch(frame, right, (kind == interp::Binary::remainder && PyUnicode_Check(left)) || PyDict_Check(left));
  if (in_place && merges)
    world.writes.about_to_update(left, right);
  else if (in_place && is_understood_container(left) && !PyTuple_Check(left))
    world.writes.about_to_write(left, kind == interp::Binary::add);  // `xs *= 2` grows by what is in it
  else
    touch(frame, left);
  mark(frame);
  CallStart start = Semantics::start_binary_op(frame, op, left, right);
  // Regions end before what torch has of them in Python, not within (runs_whole).
  if (guard::is_tensor(left) || guard::is_tensor(right))
    start = {finish_binary_op(frame, op, left, right, start), nullptr};
  if (!start.frame) end_if_wanted(frame, PyIter_Check(right));
  return start;
}

PyObject* Recording::unary_op(Frame& frame, interp::Unary op, PyObject* value) {
  PyObject* const name = op == interp::Unary::negative   ? names_of.neg_
                         : op == interp::Unary::positive ? names_of.pos_
                                                         : names_of.invert_;
  if (op != interp::Unary::logical_not)
    if (PyObject* made = array_operation(*this, frame, name, {value}); made || PyErr_Occurred()) return made;
  if (on && world.follows_number(value)) {
    if (op != interp::Unary::logical_not) return number_unary(*this, frame, op, value);
    return Py_NewRef(truth(frame, value) ? Py_False : Py_True);
  }
  if (on) world.use(value);
  if (!on || guard::is_leaf(value)) return Semantics::unary_op(frame, op, value);
  if (op == interp::Unary::logical_not) {
    int status = truth(frame, value);
    return status < 0 ? nullptr : Py_NewRef(status ? Py_False : Py_True);
  }
  note_special(value, name);
  end_if_overridden(frame, value);
  if (on) mark(frame);
  PyObject* result = Semantics::unary_op(frame, op, value);
  end_if_wanted(frame);
  return result;
}

CallStart Recording::start_compare(Frame& frame, int op, PyObject* left, PyObject* right) {
  PyObject* made = array_operation(*this, frame, names_of.compare[op], {left, right});
  if (made || PyErr_Occurred()) return {made, nullptr};
  if (on && world.follows()) {
    PyObject* value = size_comparison(*this, frame, op, left, right);
    if (value || PyErr_Occurred()) return {value, nullptr};
  }
  if (PyObject* answer = on ? world.lists.compared_lists(op, left, right) : nullptr) return {answer, nullptr};
  if (on) world.use(left), world.use(right);
  if (!on || (guard::is_leaf(left) && guard::is_leaf(right)))
    return Semantics::start_compare(frame, op, left, right);
  constexpr int turned[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};  // Py_LT comes first
  note_special(left, names_of.compare[op]);
  note_special(right, names_of.compare[turned[op]]);
  touch(frame, left, true);
  touch(frame, right, true);
  world.compared(left, right);
  mark(frame);
  CallStart start = Semantics::start_compare(frame, op, left, right);
  if (guard::is_tensor(left) || guard::is_tensor(right))
    start = {finish_compare(frame, op, left, right, start), nullptr};
  if (!start.frame) end_if_wanted(frame);
  return start;
}

/// Does a class on top of dict look for keys by a method of its own?
static bool has_own_contains(PyObject* container) {
  PyTypeObject* type = Py_TYPE(container);
  return PyDict_Check(container) && is_python_class(type) &&
         _PyType_Lookup(type, names_of.contains_) != _PyType_Lookup(&PyDict_Type, names_of.contains_);
}

int Recording::contains(Frame& frame, PyObject* container, PyObject* value) {
  if (const auto there = has_own_contains(container) ? std::nullopt : number_among(*this, container, value))
    return *there;
  const bool hashes = PyDict_Check(container) || is_set(container);
  const bool by_identity = hashes && World::is_told_by_identity(value);
  if (on) {
    hashes ? world.told_apart(value) : world.use(value);
    if (!PyDict_Check(container)) world.use_elements(container);  // of a dict only keys are looked at
  }
  if (on) {
    note_special(container, names_of.contains_);
    if (!by_identity) touch(frame, value, true);
    if (PyDict_Check(container))
      world.dict_get(container, value);
    else
      touch(frame, container, true);
    for (Py_ssize_t i = 0; is_sequence(container) && i < Py_SIZE(container); ++i)
      world.compared(value, PySequence_Fast_GET_ITEM(container, i));
    PyErr_Clear();
    mark(frame);
  }
  const NativeReader reader(*this, false);
  int status = Semantics::contains(frame, container, value);
  end_if_wanted(frame, PyIter_Check(container));
  return status;
}

namespace {

/// A tuple or slice that the run made: a new one in each call.
bool is_made(World& world, PyObject* object) {
  return (PyTuple_Check(object) || PySlice_Check(object)) && !world.find(object) &&
         world.original(object) == object;
}

/// No number is None, nor an object of another class, whatever its value.
bool may_be_one(World& world, PyObject* left, PyObject* right) {
  if (left == Py_None || right == Py_None || is_made(world, left) || is_made(world, right)) return false;
  return Py_TYPE(left) == Py_TYPE(right) || world.late(left) || world.late(right) || world.is_open(left) ||
         world.is_open(right);
}

/// Which object a container is has nothing to do with what is in it. Numbers, texts and tuples have an
/// address of their own while they are recorded, which says nothing.
void use_identity(World& world, PyObject* object) {
  const bool has_copies = can_be_followed(object) || PyTuple_Check(object) || PySlice_Check(object);
  if (has_copies || world.late(object)) world.use(object);
}

}  // namespace

bool Recording::is_same(Frame& frame, PyObject* left, PyObject* right) {
  if (on && left != right) {  // what is one object in the recording was given by one place, or made once
    if (may_be_one(world, left, right)) use_identity(world, left), use_identity(world, right);
    world.compared(left, right);
    left = world.original(left), right = world.original(right);
  }
  return Semantics::is_same(frame, left, right);
}

int Recording::truth(Frame& frame, PyObject* value) {
  if (on && world.follows_number(value)) {
    const int status = Semantics::truth(frame, value);
    if (world.is_open(value) && expects(*this, frame, status != 0)) {
      const PyRef zero = PyRef::steal(PyLong_FromLong(0));
      if (expect_comparison(*this, frame, Py_NE, value, zero.get(), status != 0)) return status;
    }
    if (const Sym* size = world.followed(value))
      world.notes->answered(*size, Relation::ne, 0, status != 0);
    else
      world.went_by({guard::NumberOp::call,
                     0,
                     PyRef::share(reinterpret_cast<PyObject*>(&PyBool_Type)),
                     {},
                     {world.step_of(value)}},
                    status ? Py_True : Py_False);
    return status;
  }
  if (!on || PyBool_Check(value) || value == Py_None) return Semantics::truth(frame, value);
  world.use_scalar(value);
  if (guard::is_leaf(value) && !PyTuple_Check(value)) return Semantics::truth(frame, value);
  if (is_understood_container(value)) {
    note_special(value, names_of.len_);
    if (!is_python_class(Py_TYPE(value))) {
      const PyRef length = PyRef::steal(world.lengths.length(value));
      return length ? truth(frame, length.get()) : -1;
    }
    world.read_length(value);
  } else {
    note_special(value, names_of.bool_);
    note_special(value, names_of.len_);
    touch(frame, value);
  }
  mark(frame);
  if (on && guard::is_tensor(value) && !world.late(value)) {
    auto truth_of = [](PyObject* tensor) { return PyBool_FromLong(PyObject_IsTrue(tensor)); };
    const PyRef known =
        PyRef::steal(model_data(frame, value, truth_of, reinterpret_cast<PyObject*>(&PyBool_Type)));
    if (known) return known.get() == Py_True;
    const int status = hooks_.unseen([&] { return Semantics::truth(frame, value); });
    if (status >= 0 && expect_truth(*this, frame, value, status != 0)) return status;
    PyErr_Clear();
  }
  int status = Semantics::truth(frame, value);
  end_if_wanted(frame);
  return status;
}

Py_ssize_t Recording::length(Frame& frame, PyObject* value) {
  if (on) {
    world.use_scalar(value);
    note_special(value, names_of.len_);
    if (is_understood_container(value))
      world.read_length(value);
    else
      touch(frame, value);
    if (world.follows() && guard::is_tensor(value)) world.use_sizes(value);
  }
  return Semantics::length(frame, value);
}

PyObject* Recording::format_value(Frame& frame, PyObject* value, int conversion, PyObject* spec) {
  if (on) {
    if (PyObject* text = late_format(*this, frame, value, conversion, spec)) return text;
    if (PyErr_Occurred()) return nullptr;
    if (PyObject* text = spec ? nullptr : world.lists.list_text(value)) return text;
  }
  if (on) world.use(value);
  if (on) world.use(spec);
  if (on && !guard::is_leaf(value)) {
    note_special(value, names_of.format_);
    note_special(value, names_of.str_);
    note_special(value, names_of.repr_);
    touch(frame, value, true);
    mark(frame);
  }
  PyObject* text = Semantics::format_value(frame, value, conversion, spec);
  end_if_wanted(frame);
  return text;
}

PyObject* Recording::match_keys(Frame& frame, PyObject* subject, PyObject* keys) {
  if (on) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) world.use(PyTuple_GET_ITEM(keys, i));
    touch(frame, subject);
  }
  return Semantics::match_keys(frame, subject, keys);
}

}  // namespace bolt::observe

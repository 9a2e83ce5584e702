// observe/reads/operators.cpp
// Items, operators, comparisons, iteration and displays of the language -> guards on what the operands show
// of themselves, notes of what is written to them, then the operation itself, which the base class does.

#include <algorithm>
#include <string_view>

#include "guard/iterators.h"
#include "interp/async_generator.h"
#include "interp/generator.h"
#include "interp/special.h"
#include "observe/calls/controls.h"
#include "observe/calls/native_watch.h"
#include "observe/reads/membership.h"
#include "observe/recording.h"
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

/// tensor[key], where key may hold numbers that differ between calls: what torch is to be given in their
/// place. Null: an error is set, or the region has ended.
bool Recording::lend_index(Frame& frame, PyRef& tensor, PyRef& key, bool* selected) {
  note_slices(tensor.get(), key.get());
  end_if_overridden(frame, tensor.get());
  if (!on) return false;
  *selected = select_followed(frame, tensor, key);
  key = PyRef::steal(world.lend(key.get()));
  return on && key;
}

/// A list of ints as an index, which torch makes a tensor of: the one that guards make of it. Null: they do
/// not.
static PyRef list_as_index(World& world, PyObject* list) {
  PyRef tensor = PyList_CheckExact(list) ? world.lists.tensor_of_list(list) : PyRef();
  if (!tensor || world.find(list)->before) return {};
  // Lists in a list are indices of several dimensions, and floats are none.
  const bool is_index =
      guard::rank_of(*guard::tensor_impl(tensor.get())) == 1 && !guard::is_floating(tensor.get());
  return is_index ? std::move(tensor) : PyRef();
}

/// The same of a list of the run's that holds numbers which are drawn (a shuffled one): operators put it
/// together.
static PyRef drawn_as_index(World& world, PyObject* list) {
  constexpr Py_ssize_t kMost = 64;
  if (!PyList_CheckExact(list) || world.find(list) || PyList_GET_SIZE(list) > kMost) return {};
  bool drawn = false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* index = PyList_GET_ITEM(list, i);
    if (!PyLong_CheckExact(index)) return {};
    drawn |= world.phase_of(index) == guard::Phase::early;
  }
  PyObject* const function = drawn ? stand_in("torch._C._VariableFunctionsClass.tensor") : nullptr;
  const NativeWatch::Pause ours;
  PyRef numbers = PyRef::steal(function ? world.lend(list, true) : nullptr);
  PyRef tensor = PyRef::steal(numbers ? PyObject_CallOneArg(function, numbers.get()) : nullptr);
  if (!tensor) PyErr_Clear();
  return tensor && tensor.get() != Py_None ? std::move(tensor) : PyRef();
}

/// tensor[key] with such tensors in the place of lists. Null: there are none.
PyRef Recording::with_list_indices(PyObject* tensor, PyObject* key) {
  if (!on || !(follows_numbers_ || world.follows()) || !guard::is_tensor(tensor)) return {};
  auto as_index = [&](PyObject* part) {
    PyRef listed = list_as_index(world, part);
    return listed ? std::move(listed) : drawn_as_index(world, part);
  };
  if (!PyTuple_CheckExact(key)) return as_index(key);
  PyRef parts = PyRef::steal(PySequence_List(key));
  bool any = false;
  for (Py_ssize_t i = 0; parts && i < PyList_GET_SIZE(parts.get()); ++i)
    if (PyRef part = as_index(PyList_GET_ITEM(parts.get(), i))) {
      any = true;
      PyList_SetItem(parts.get(), i, part.release());
    }
  PyRef tuple = any ? PyRef::steal(PyList_AsTuple(parts.get())) : PyRef();
  if (!tuple) PyErr_Clear();
  return tuple;
}

/// The function of Python's that a defaultdict calls for a key that it does not have; null: there is none.
PyRef Recording::default_in_python(Frame& frame, PyObject* container) {
  static PyTypeObject* const with_default = native_type("collections", "defaultdict");
  if (!Py_IS_TYPE(container, with_default)) return {};
  PyRef factory = PyRef::steal(get_attr(frame, container, interned<"default_factory">()));
  return on && factory && calls_python(factory.get()) ? std::move(factory) : PyRef();
}

CallStart Recording::start_get_item(Frame& frame, PyObject* container, PyObject* key) {
  if (!on) return Semantics::start_get_item(frame, container, key);
  const PyRef listed = with_list_indices(container, key);
  if (listed) key = listed.get();
  PyRef part = PyRef::share(container), index = PyRef::share(key);
  bool selected = false;
  if (PyObject* letters = world.places.letters_of(container, key)) return {letters, nullptr};
  if (PyObject* item = item_by_number(frame, container, key)) return {item, nullptr};
  PyMappingMethods* const mapping = Py_TYPE(container)->tp_as_mapping;
  const bool python = mapping && mapping->mp_subscript == python_slots.get_item;
  if (world.follows() && guard::is_tensor(container) && !world.late(container)) {
    if (!lend_index(frame, part, index, &selected))
      return on ? CallStart{} : Semantics::start_get_item(frame, container, key);
    if (selected && index.get() == Py_Ellipsis)
      return end_if_wanted(frame), CallStart{part.release(), nullptr};
  } else if (const auto at = world.lengths.index_from_end(container, key)) {
    index = PyRef::steal(PyLong_FromSsize_t(*at));
  } else if (!python && !world.followed_keys.may_follow_keys(container)) {
    world.use(key);
  }
  world.use_scalar(container);
  if (!on) return Semantics::start_get_item(frame, container, key);
  if (python) {
    note_special(container, names_of.getitem_);
  } else if (PyDict_Check(container)) {
    PyObject* value = world.dict_get(container, key);
    if (value) return {Py_NewRef(value), nullptr};
    PyErr_Clear();
    if (PyRef factory = default_in_python(frame, container)) {
      PyObject* args[] = {container, key, factory.get()};
      return call_instead(frame, stand_in("default of a key"), nullptr, args, 3, nullptr);
    }
    if (!PyDict_CheckExact(container)) {
      note_special(container, PyRef::steal(PyUnicode_InternFromString("__missing__")).get());
      world.writes.about_to_write_item(container, key);  // a defaultdict inserts
    }
  } else if ((PyList_Check(container) || PyTuple_Check(container)) && PyLong_CheckExact(key)) {
    Py_ssize_t at = PyLong_AsSsize_t(index.get());
    if (PyObject* value = PyErr_Occurred() ? nullptr : world.sequence_item(container, at))
      return {Py_NewRef(value), nullptr};
    PyErr_Clear();
  } else if (is_deque(container) && PyLong_CheckExact(index.get()) &&
             world.lengths.known_by_ends(container)) {
    const Py_ssize_t at = PyLong_AsSsize_t(index.get());
    if (PyObject* value = PyErr_Occurred() ? nullptr : world.lengths.item_at(container, at))
      return {Py_NewRef(value), nullptr};
    PyErr_Clear();
  } else if (PyObject* items = PySlice_Check(key) ? world.lengths.slice_of(container, key) : nullptr) {
    return {items, nullptr};
  } else {
    world.own_numbers_of(container);
    touch(frame, container);
    touch(frame, index.get(), true);
  }
  if (!selected) mark(frame);
  const CallStart start = Semantics::start_get_item(frame, part.get(), index.get());
  PyObject* value = start.value;
  if (start.frame) return start;
  if (on && value && !selected && guard::is_tensor(container) && hooks_.wants_end()) {
    PyObject* const getitem = getitem_function();
    world.pin(getitem);
    if (late_operator(getitem, {container, index.get()}, nullptr, value, frame)) return start;
  }
  if (!value) sizes_told(container);
  if (!value && on && PyDict_Check(container)) world.use(key);  // the error tells of it
  end_if_wanted(frame);
  return start;
}

/// An index that torch refused: what it says of that has the sizes in it.
void Recording::sizes_told(PyObject* tensor) {
  if (!on || !world.follows() || !guard::is_tensor(tensor)) return;
  const RaisedAside raised;
  world.use_sizes(tensor);
}

/// What is written into a tensor: a number that differs between calls as a tensor, since torch would read it.
PyRef Recording::lend_written(Frame& frame, PyObject* tensor, PyObject* value) {
  end_if_overridden(frame, tensor);
  const bool fits = on && world.follows_number(value) && is_number(value) && guard::is_floating(tensor);
  if (fits && !world.late(tensor)) {
    mark(frame);
    const PyRef number = PyRef::steal(world.lend(value, true)), none = PyRef::steal(PyTuple_New(0));
    PyRef filled = PyRef::steal(
        on && number ? PyObject_CallMethod(tensor, "new_full", "OO", none.get(), number.get()) : nullptr);
    if (filled) return filled;
    PyErr_Clear();  // the number itself may do
  }
  if (on) world.use(value);
  return PyRef::share(value);
}

/// xs[:]
static bool is_whole_slice(PyObject* key) {
  if (!PySlice_Check(key)) return false;
  auto* slice = reinterpret_cast<PySliceObject*>(key);
  return slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None;
}

int Recording::set_item(Frame& frame, PyObject* container, PyObject* key, PyObject* value) {
  if (on && world.places.about_to_place(container, key))
    return Semantics::set_item(frame, container, key, value);
  const PyRef listed = with_list_indices(container, key);
  if (listed) key = listed.get();
  PyRef part = PyRef::share(container), index = PyRef::share(key), lent = PyRef::share(value);
  bool selected = false;
  const bool to_tensor = guard::is_tensor(container);
  if (on && to_tensor) lent = lend_written(frame, container, value);
  if (on && to_tensor && world.follows() && !world.late(container)) {
    if (!lend_index(frame, part, index, &selected))
      return on ? -1 : Semantics::set_item(frame, container, stored(key), stored(value));
  } else if (on) {
    if (!world.followed_keys.may_follow_keys(container)) world.use(key);
    world.use_scalar(container);
  }
  if (on) {
    note_special(container, names_of.setitem_);
    if (PySlice_Check(key)) use_unseen(value);
    if (PySlice_Check(key) && !to_tensor) world.own_numbers_of(value), touch(frame, value);
    touch(frame, index.get(), true);
    if (PyDict_Check(container) && world.find(container) && !World::is_plain_key(key))
      end_here(frame, Why::key_written);
    if (on && PyDict_Check(container))
      world.writes.about_to_write_item(container, key);
    else if (on && is_understood_container(container) && !PyTuple_Check(container)) {
      const bool anew = PyList_Check(container) && is_whole_slice(key) && PyList_CheckExact(value) &&
                        value != container && world.lengths.about_to_clear(container);
      if (!anew && !world.lengths.is_own_item(container, key)) world.writes.about_to_write(container);
    } else if (on)
      touch(frame, container);
    if (on && !selected) mark(frame);
  }
  int status = on ? Semantics::set_item(frame, part.get(), index.get(), lent.get())
                  : Semantics::set_item(frame, container, stored(key), stored(value));
  if (status < 0) sizes_told(container);
  end_if_wanted(frame, PyIter_Check(value));
  return status;
}

int Recording::delete_item(Frame& frame, PyObject* container, PyObject* key) {
  if (on) {
    if (!world.followed_keys.may_follow_keys(container)) world.use(key);
    note_special(container, names_of.delitem_);
    touch(frame, key, true);
    if (PyDict_Check(container) && world.lengths.about_to_take_first(container, key))
      return Semantics::delete_item(frame, container, key);
    if (PyDict_Check(container)) {
      if (!world.dict_get(container, key)) world.use(key);  // the error tells of it
      world.writes.about_to_write_item(container, key, true);
    } else if (world.lengths.cut(container, key)) {
      return 0;
    } else if (is_understood_container(container) && !PyTuple_Check(container))
      world.lengths.about_to_delete(container, key);
    else
      touch(frame, container);
  }
  return Semantics::delete_item(frame, container, key);
}

CallStart Recording::start_binary_op(Frame& frame, int op, PyObject* left, PyObject* right) {
  const int kind = op % interp::Binary::inplace;
  if (on && world.follows()) {
    bool handled = false;
    PyObject* value = size_arithmetic(frame, op, left, right, &handled);
    if (handled) return {value, nullptr};
  }
  if (on && PyUnicode_CheckExact(left)) {
    PyObject* text = late_operation(kind, left, right);
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
  if (on && world.follows_number(value)) {
    if (op != interp::Unary::logical_not) return number_unary(frame, op, value);
    return Py_NewRef(truth(frame, value) ? Py_False : Py_True);
  }
  if (on) world.use(value);
  if (!on || guard::is_leaf(value)) return Semantics::unary_op(frame, op, value);
  if (op == interp::Unary::logical_not) {
    int status = truth(frame, value);
    return status < 0 ? nullptr : Py_NewRef(status ? Py_False : Py_True);
  }
  note_special(value, op == interp::Unary::negative   ? names_of.neg_
                      : op == interp::Unary::positive ? names_of.pos_
                                                      : names_of.invert_);
  end_if_overridden(frame, value);
  if (on) mark(frame);
  PyObject* result = Semantics::unary_op(frame, op, value);
  end_if_wanted(frame);
  return result;
}

CallStart Recording::start_compare(Frame& frame, int op, PyObject* left, PyObject* right) {
  if (on && world.follows()) {
    bool handled = false;
    PyObject* value = size_comparison(frame, op, left, right, &handled);
    if (handled) return {value, nullptr};
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
    if (!PyDict_Check(container)) world.use(container);  // of a dict only keys are looked at
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
    if (world.is_open(value) && expects(frame, status != 0)) {
      const PyRef zero = PyRef::steal(PyLong_FromLong(0));
      if (expect_comparison(frame, Py_NE, value, zero.get(), status != 0)) return status;
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
    hooks_.pause(true);
    const int status = Semantics::truth(frame, value);
    hooks_.pause(false);
    if (status >= 0 && expect_truth(frame, value, status != 0)) return status;
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

PyObject* Recording::get_iter(Frame& frame, PyObject* object) {
  if (on && guard::iterator_kind(object)) return Semantics::get_iter(frame, object);  // itself, whole
  const PyRef followed = on ? world.with_followed(object) : PyRef();
  if (followed) return Semantics::get_iter(frame, followed.get());
  if (on) {
    world.use_scalar(object);
    note_special(object, names_of.iter_);
    touch(frame, object);
    mark(frame);
  }
  PyObject* iterator = Semantics::get_iter(frame, object);
  if (on && iterator) note_given(frame, iterator);
  end_if_wanted(frame);
  return iterator;
}

interp::CallStart Recording::start_next(Frame& frame, PyObject* iterator) {
  if (on) {
    note_special(iterator, names_of.next_);
    if (PyGen_Check(iterator) && is_outside(iterator)) end_here(frame, Why::generator_advanced);
    const interp::CallStart start = on ? start_next_of_callback(frame, iterator) : interp::CallStart();
    if (!start.failed() || PyErr_Occurred()) return start;
  }
  return Semantics::start_next(frame, iterator);
}

PyObject* Recording::advance(Frame& frame, PyObject* iterator) {
  if (!on) return Semantics::advance(frame, iterator);
  note_special(iterator, names_of.next_);
  const bool found = is_outside(iterator) && !is_python_class(Py_TYPE(iterator));
  if (found && world.can_advance(iterator))
    world.about_to_advance(iterator);
  else if (found)
    end_here(frame, {Why::advanced, Py_TYPE(iterator)->tp_name});
  bool handled = false;
  PyObject* item = on ? next_seen(frame, iterator, &handled) : nullptr;
  if (!handled) item = Semantics::advance(frame, iterator);
  return on && found ? world.has_advanced(iterator, item) : item;  // otherwise the region has ended before
}

int Recording::unpack_sequence(Frame& frame, PyObject* sequence, int n, PyObject** out) {
  if (const PyRef followed = on ? world.with_followed(sequence) : PyRef())
    return Semantics::unpack_sequence(frame, followed.get(), n, out);
  if (on) {
    world.use_scalar(sequence);
    note_special(sequence, names_of.iter_);
    touch(frame, sequence);
    mark(frame);
  }
  int status = Semantics::unpack_sequence(frame, sequence, n, out);
  end_if_wanted(frame, PyIter_Check(sequence));
  return status;
}

int Recording::unpack_ex(Frame& frame, PyObject* sequence, int before, int after, PyObject** out) {
  if (const PyRef followed = on ? world.with_followed(sequence) : PyRef())
    return Semantics::unpack_ex(frame, followed.get(), before, after, out);
  if (on) {
    world.use_scalar(sequence);
    note_special(sequence, names_of.iter_);
    touch(frame, sequence);
    mark(frame);
  }
  return Semantics::unpack_ex(frame, sequence, before, after, out);
}

// The containers that comprehensions and displays fill are from outside where a region began in the middle of
// one.
int Recording::list_append(Frame& frame, PyObject* list, PyObject* value) {
  if (on) world.writes.about_to_write(list, true);
  return Semantics::list_append(frame, list, value);
}

int Recording::list_extend(Frame& frame, PyObject* list, PyObject* iterable) {
  if (Known* of = on ? world.lengths.begin_extension(list, iterable) : nullptr) {
    const Py_ssize_t size = PyList_GET_SIZE(list);
    const int status = Semantics::list_extend(frame, list, iterable);
    if (status == 0) world.lengths.end_extension(list, of, size);
    return status;
  }
  const PyRef followed = on ? world.with_followed(iterable) : PyRef();
  PyRef seen;
  if (on && !followed && !gather(frame, iterable, seen)) return -1;
  if (seen) iterable = seen.get();
  if (on && !followed) world.use_scalar(iterable), touch(frame, iterable);
  if (on) world.writes.about_to_write(list, true);
  return Semantics::list_extend(frame, list, followed ? followed.get() : iterable);
}

int Recording::set_update(Frame& frame, PyObject* set, PyObject* iterable) {
  if (on) {
    world.use(iterable);
    touch(frame, iterable);
    world.writes.about_to_write(set);
  }
  const NativeReader reader(*this, false);
  return Semantics::set_update(frame, set, iterable);
}

int Recording::dict_update(Frame& frame, PyObject* dict, PyObject* mapping) {
  if (interp::maps_in_python(mapping)) return Semantics::dict_update(frame, dict, mapping);
  if (on) world.own_numbers_of(mapping), touch(frame, mapping);
  if (on && PyDict_Check(mapping)) world.followed_keys.puts_keys(dict, mapping);
  if (on) world.writes.about_to_update(dict, mapping);
  const NativeReader reader(*this, PyDict_Check(mapping));
  return Semantics::dict_update(frame, dict, mapping);
}

int Recording::dict_merge(Frame& frame, PyObject* dict, PyObject* mapping, PyObject* callable) {
  if (interp::maps_in_python(mapping)) {
    const int status = Semantics::dict_merge(frame, dict, mapping, callable);
    if (on) world.followed_keys.use_keys(dict);  // names of parameters
    return status;
  }
  if (on) world.own_numbers_of(mapping), touch(frame, mapping);
  if (on) world.followed_keys.use_keys(mapping);  // names of parameters
  if (on) world.writes.about_to_update(dict, mapping);
  return Semantics::dict_merge(frame, dict, mapping, callable);
}

int Recording::exception_matches(Frame& frame, PyObject* exception, PyObject* cls) {
  if (on) world.read_deep(cls);  // classes, or tuples of them
  return Semantics::exception_matches(frame, exception, cls);
}

/// Being raised writes into an exception where it was raised and what was handled then.
void Recording::about_to_raise(Frame& frame, PyObject* exception) {
  if (!on || !PyExceptionInstance_Check(exception) || !world.find(exception)) return;
  auto* object = reinterpret_cast<PyBaseExceptionObject*>(exception);
  // What is there is from a call long over; what is added is in front of it.
  if (object->traceback || object->context) return end_here(frame, Why::raised_again);
  for (const auto& [name, offset] : {std::pair("__traceback__", offsetof(PyBaseExceptionObject, traceback)),
                                     std::pair("__context__", offsetof(PyBaseExceptionObject, context))}) {
    world.field(exception, static_cast<Py_ssize_t>(offset), interned(name));
    world.writes.about_to_write_field(exception, static_cast<Py_ssize_t>(offset));
  }
}

namespace {

/// Is it, or holds it, an exception that the run did not make?
bool holds_outside(World& world, PyObject* exception) {
  if (world.find(exception)) return true;
  if (!PyObject_TypeCheck(exception, reinterpret_cast<PyTypeObject*>(PyExc_BaseExceptionGroup))) return false;
  PyObject* all = reinterpret_cast<PyBaseExceptionGroupObject*>(exception)->excs;
  for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(all); ++i)
    if (holds_outside(world, PyTuple_GET_ITEM(all, i))) return true;
  return false;
}

}  // namespace

PyObject* Recording::split_group(Frame& frame, PyObject* group, PyObject* cls) {
  if (on) world.read_deep(cls);
  if (on && holds_outside(world, group)) end_here(frame, Why::exceptions_split);
  return Semantics::split_group(frame, group, cls);
}

PyObject* Recording::list_to_tuple(Frame& frame, PyObject* list) {
  if (PyObject* tuple = on ? world.lengths.tuple_of(list) : nullptr) return tuple;
  if (on) touch(frame, list);
  return Semantics::list_to_tuple(frame, list);
}

PyObject* Recording::star_args(Frame& frame, PyObject* callable, PyObject* iterable) {
  if (const PyRef followed = on ? world.with_followed(iterable) : PyRef())
    return Semantics::star_args(frame, callable, followed.get());
  PyRef seen;
  if (on && !gather(frame, iterable, seen)) return nullptr;
  if (seen) iterable = seen.get();
  if (on) world.use_scalar(iterable), touch(frame, iterable);
  return Semantics::star_args(frame, callable, iterable);
}

PyObject* Recording::star_kwargs(Frame& frame, PyObject* callable, PyObject* mapping) {
  if (on) world.own_numbers_of(mapping), touch(frame, mapping);
  if (on) world.followed_keys.use_keys(mapping);
  return Semantics::star_kwargs(frame, callable, mapping);
}

PyObject* Recording::format_value(Frame& frame, PyObject* value, int conversion, PyObject* spec) {
  if (on) {
    if (PyObject* text = late_format(frame, value, conversion, spec)) return text;
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

PyObject* Recording::build(Frame& frame, interp::Build kind, PyObject* const* items, Py_ssize_t n) {
  // Keys are hashed, values are only kept.
  if (on && kind == interp::Build::const_key_map) world.use(items[n - 1]);
  if (on && kind == interp::Build::set)
    for (Py_ssize_t i = 0; i < n; ++i) world.told_apart(items[i]);
  if (on && kind == interp::Build::map) world.followed_keys.puts_keys_of_display(items, n);
  if (on && kind == interp::Build::string)
    return late_join(Semantics::build(frame, kind, items, n), items, n);
  return Semantics::build(frame, kind, items, n);
}

int Recording::set_add(Frame& frame, PyObject* set, PyObject* value) {
  if (on) world.told_apart(value), world.writes.about_to_write(set);
  return Semantics::set_add(frame, set, value);
}

int Recording::map_add(Frame& frame, PyObject* map, PyObject* key, PyObject* value) {
  if (on) world.writes.about_to_write_item(map, key);
  return Semantics::map_add(frame, map, key, value);
}

PyObject* Recording::match_class(Frame& frame, PyObject* subject, PyObject* cls, Py_ssize_t n,
                                 PyObject* names) {
  if (on) world.use_all();
  if (on && world.find(subject) && !guard::is_leaf(subject)) end_here(frame, Why::matched);
  return Semantics::match_class(frame, subject, cls, n, names);
}

PyObject* Recording::match_keys(Frame& frame, PyObject* subject, PyObject* keys) {
  if (on) {
    world.use_all();
    touch(frame, subject);
  }
  return Semantics::match_keys(frame, subject, keys);
}

bool Recording::is_outside(PyObject* generator) {
  const auto& resumed = world.resumed;
  const bool is_resumed = std::find(resumed.begin(), resumed.end(), generator) != resumed.end();
  if (world.find(generator) && !is_resumed) return true;
  const bool hands_on = interp::awaitable_kind(generator) != interp::Awaitable::none;
  return hands_on && is_outside(interp::awaited_generator(generator));
}

PySendResult Recording::send(Frame& frame, PyObject* receiver, PyObject* value, PyObject** result) {
  if (on && !interp::is_only_advanced(receiver, value) && is_outside(receiver))
    end_here(frame, Why::generator_advanced);
  return Semantics::send(frame, receiver, value, result);
}

Frame* Recording::start_send(Frame& frame, PyObject* receiver, PyObject* value) {
  if (on && !interp::is_only_advanced(receiver, value) && is_outside(receiver))
    end_here(frame, Why::generator_advanced);
  return Semantics::start_send(frame, receiver, value);
}

/// What a future gives is C's, and cannot be made again.
PyObject* Recording::get_awaitable(Frame& frame, PyObject* object) {
  PyObject* iterator = Semantics::get_awaitable(frame, object);
  if (on && iterator && iterator != object) note_given(frame, iterator);
  return iterator;
}

}  // namespace bolt::observe

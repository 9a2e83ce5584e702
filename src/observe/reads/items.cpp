// observe/reads/items.cpp
// container[key], read, written and deleted -> guards on what the container and the key show of themselves,
// notes of what is written, then the operation itself, which the base class does. Of a tensor the key may
// hold numbers that differ between calls, and lists, which torch makes tensors of.

#include <utility>

#include "guard/number_lists.h"
#include "observe/calls/controls.h"
#include "observe/calls/native_watch.h"
#include "observe/recording.h"
#include "observe/values/arrays.h"
#include "observe/values/late.h"
#include "observe/values/number_calls.h"
#include "observe/values/number_operations.h"
#include "python/slots.h"

namespace bolt::observe {

using interp::CallStart;
using interp::Semantics;

/// An index that torch refused: what it says of that has the sizes in it.
static void sizes_told(Recording& recording, PyObject* tensor) {
  World& world = recording.world;
  if (!recording.on || !world.follows() || !guard::is_tensor(tensor)) return;
  const RaisedAside raised;
  world.use_sizes(tensor);
}

/// tensor[key], where key may hold numbers that differ between calls: what torch is to be given in their
/// place. Null: an error is set, or the region has ended.
static bool lend_index(Recording& recording, Frame& frame, PyRef& tensor, PyRef& key, bool* selected) {
  note_slices(recording, tensor.get(), key.get());
  recording.end_if_overridden(frame, tensor.get());
  if (!recording.on) return false;
  *selected = select_followed(recording, frame, tensor, key);
  key = PyRef::steal(recording.world.lend(key.get()));
  return recording.on && key;
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

/// An array of int64 or bools from outside, which torch makes a tensor of, too. It converts others.
static PyRef array_as_index(World& world, PyObject* array) {
  const PyRef kind = PyRef::steal(PyObject_GetAttrString(array, "dtype"));
  const PyRef letter = PyRef::steal(kind ? PyObject_GetAttrString(kind.get(), "char") : nullptr);
  auto is = [&](const char* text) { return PyUnicode_CompareWithASCIIString(letter.get(), text) == 0; };
  return letter && (is("l") || is("?")) ? world.lists.tensor_of_array(array) : PyRef();
}

/// The tensor that torch is given for a list of the run's with numbers in it that are drawn (a shuffled one):
/// operators put it together. Null: there is none.
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

/// The number in a tensor without dimensions, which torch asks for where that is a part of an index. Null: it
/// is none, or not done here: gradients of what data select are not written down for all numbers, and what is
/// out of range raises, which the program may catch. `dim`: which the part is for; -1: nobody knows.
static PyRef item_as_index(Recording& recording, Frame& frame, PyObject* tensor, PyObject* part, int dim) {
  static PyObject* const item = PyObject_GetAttrString(guard::tensor_class(), "item");
  const c10::TensorImpl& indexed = *guard::tensor_impl(tensor);
  if (dim < 0 || dim >= guard::rank_of(indexed)) return {};
  if (!guard::is_tensor(part) || guard::rank_of(*guard::tensor_impl(part)) != 0 || guard::is_floating(part) ||
      guard::is_mask(*guard::tensor_impl(part)) || !recording.hooks().lends_open() ||
      guard::requires_grad(tensor) || recording.hooks().gives_followed(0))
    return {};
  PyRef number = PyRef::steal(recording.call_native(frame, item, &part, 1, nullptr));
  if (!number) PyErr_Clear();
  if (!number || !PyLong_CheckExact(number.get())) return {};
  const Py_ssize_t place = PyLong_AsSsize_t(number.get());
  if (place < 0) PyErr_Clear();
  return place >= 0 && place < guard::size_of(indexed, dim) ? std::move(number) : PyRef();
}

/// tensor[key] with such tensors and numbers in the place of lists, arrays and tensors without dimensions.
/// Null: there are none.
static PyRef with_list_indices(Recording& recording, Frame& frame, PyObject* tensor, PyObject* key) {
  World& world = recording.world;
  if (!recording.on || !guard::is_tensor(tensor)) return {};
  const bool follows = recording.hooks().follows_numbers() || world.follows();
  auto as_index = [&](PyObject* part, int dim) {
    if (guard::is_array(part)) return array_as_index(world, part);
    if (PyRef number = item_as_index(recording, frame, tensor, part, dim)) return number;
    PyRef listed = follows ? list_as_index(world, part) : PyRef();
    return listed || !follows ? std::move(listed) : drawn_as_index(world, part);
  };
  if (!PyTuple_CheckExact(key)) return as_index(key, 0);
  PyRef parts = PyRef::steal(PySequence_List(key));
  bool any = false;
  int dim = 0;  // as long as each part before is for one
  for (Py_ssize_t i = 0; parts && recording.on && i < PyList_GET_SIZE(parts.get()); ++i) {
    if (PyRef part = as_index(PyList_GET_ITEM(parts.get(), i), dim)) {
      any = true;
      PyList_SetItem(parts.get(), i, part.release());
    }
    PyObject* const now = PyList_GET_ITEM(parts.get(), i);
    const bool is_for_one = dim >= 0 && (PyLong_CheckExact(now) || PySlice_Check(now));
    dim = is_for_one ? dim + 1 : -1;
  }
  PyRef tuple = any ? PyRef::steal(PyList_AsTuple(parts.get())) : PyRef();
  if (!tuple) PyErr_Clear();
  return tuple;
}

/// The function of Python's that a defaultdict calls for a key that it does not have; null: there is none.
static PyRef default_in_python(Recording& recording, Frame& frame, PyObject* container) {
  static PyTypeObject* const with_default = native_type("collections", "defaultdict");
  if (!Py_IS_TYPE(container, with_default)) return {};
  PyRef factory = PyRef::steal(recording.get_attr(frame, container, interned<"default_factory">()));
  return recording.on && factory && calls_python(factory.get()) ? std::move(factory) : PyRef();
}

CallStart Recording::start_get_item(Frame& frame, PyObject* container, PyObject* key) {
  if (!on) return Semantics::start_get_item(frame, container, key);
  PyObject* made = array_operation(*this, frame, names_of.getitem_, {container, key});
  if (made || PyErr_Occurred()) return {made, nullptr};
  const PyRef listed = with_list_indices(*this, frame, container, key);
  if (listed) key = listed.get();
  PyRef part = PyRef::share(container), index = PyRef::share(key);
  bool selected = false;
  if (PyObject* letters = world.places.letters_of(container, key)) return {letters, nullptr};
  if (PyObject* item = item_by_number(*this, frame, container, key)) return {item, nullptr};
  PyMappingMethods* const mapping = Py_TYPE(container)->tp_as_mapping;
  const bool python = mapping && mapping->mp_subscript == python_slots.get_item;
  if (world.follows() && guard::is_tensor(container) && !world.late(container)) {
    if (!lend_index(*this, frame, part, index, &selected))
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
    if (PyRef factory = default_in_python(*this, frame, container)) {
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
    if (late_operator(*this, getitem, {container, index.get()}, nullptr, value, frame)) return start;
  }
  if (!value) sizes_told(*this, container);
  if (!value && on && PyDict_Check(container)) world.use(key);  // the error tells of it
  end_if_wanted(frame);
  return start;
}

/// What is written into a tensor: a number that differs between calls as a tensor, since torch would read it.
static PyRef lend_written(Recording& recording, Frame& frame, PyObject* tensor, PyObject* value) {
  World& world = recording.world;
  recording.end_if_overridden(frame, tensor);
  // What does not fit a smaller class is an error of torch's, or cut off.
  const bool fits =
      guard::is_floating(tensor) ? is_number(value) : PyLong_CheckExact(value) && guard::is_long(tensor);
  if (recording.on && fits && world.follows_number(value) && !world.late(tensor)) {
    recording.mark(frame);
    const PyRef number = PyRef::steal(world.lend(value, true)), none = PyRef::steal(PyTuple_New(0));
    PyRef filled = PyRef::steal(recording.on && number
                                    ? PyObject_CallMethod(tensor, "new_full", "OO", none.get(), number.get())
                                    : nullptr);
    if (filled) return filled;
    PyErr_Clear();  // the number itself may do
  }
  if (recording.on) world.use(value);
  return PyRef::share(value);
}

/// xs[:]
static bool is_whole_slice(PyObject* key) {
  if (!PySlice_Check(key)) return false;
  auto* slice = reinterpret_cast<PySliceObject*>(key);
  return slice->start == Py_None && slice->stop == Py_None && slice->step == Py_None;
}

int Recording::set_item(Frame& frame, PyObject* container, PyObject* key, PyObject* value) {
  const PyRef written =
      PyRef::steal(array_operation(*this, frame, names_of.setitem_, {container, key, value}));
  if (written || PyErr_Occurred()) return written ? 0 : -1;
  if (on && world.places.about_to_place(container, key))
    return Semantics::set_item(frame, container, key, value);
  const PyRef listed = with_list_indices(*this, frame, container, key);
  if (listed) key = listed.get();
  PyRef part = PyRef::share(container), index = PyRef::share(key), lent = PyRef::share(value);
  bool selected = false;
  const bool to_tensor = guard::is_tensor(container);
  if (on && to_tensor) lent = lend_written(*this, frame, container, value);
  if (on && to_tensor && world.follows() && !world.late(container)) {
    if (!lend_index(*this, frame, part, index, &selected))
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
  if (status < 0) sizes_told(*this, container);
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

}  // namespace bolt::observe

// observe/values/lengths.cpp
#include "observe/values/lengths.h"

#include <tuple>

#include "observe/world.h"

namespace bolt::observe {

Py_ssize_t native_length(PyObject* container) {
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  return is_set(container) ? PySet_GET_SIZE(container) : Py_SIZE(container);
}

bool is_plain_constant(PyObject* key) { return PyLong_CheckExact(key) || PyUnicode_CheckExact(key); }

Sym Lengths::length_before(Known& known) {
  if (known.of) return length_before(*known.of);
  PyObject* contents = known.before ? known.before.get() : known.object.get();
  if (!known.length) {
    known.length = PyRef::steal(PyLong_FromSsize_t(native_length(contents)));
    if (known.read_whole || !hooks_.follows_length(*known.source, world_.tree->root_names)) {
      known.source->assume(Check::length, nullptr, native_length(contents));
    } else {
      using guard::NumberOp;
      static PyObject* const len = PyDict_GetItemString(PyEval_GetBuiltins(), "len");
      const int container =
          world_.numbers.add({NumberOp::source, world_.tree->keep(known.source), {}, {}, {}});
      known.length = PyRef::steal(
          world_.computed(known.length.release(), {NumberOp::call, 0, PyRef::share(len), {}, {container}}));
    }
  }
  return world_.expression(known.length.get());
}

Sym Lengths::length_now(Known& known) {
  const bool is_told = (known.window.cleared && !known.read_whole) || known.window.last >= 0;
  if (is_told) return native_length(known.object.get());
  const Py_ssize_t before = native_length(known.before ? known.before.get() : known.object.get());
  return length_before(known) + Sym(native_length(known.object.get()) - before);
}

/// Which of the keys that the run wrote were there before it. False: of some that is not told.
bool Lengths::tell_written_keys(Known& known) {
  if (known.window.cleared || is_set(known.object.get())) return true;  // of a set it has been told
  using guard::NumberOp;
  std::vector<PyObject*> keys;
  Py_ssize_t position = 0;
  PyObject *key, *how;
  while (PyDict_Next(known.keys.get(), &position, &key, &how)) {
    if (world_.followed_keys.is_followed_key(key)) continue;  // it has been told
    if (!is_plain_constant(key)) return false;
    if (known.window.front && PyDict_Contains(known.before.get(), key) != 0) return false;  // or has it gone?
    keys.push_back(key);
  }
  const int dict =
      keys.empty() ? -1 : world_.numbers.add({NumberOp::source, world_.tree->keep(known.source), {}, {}, {}});
  for (PyObject* each : keys) {
    const PyRef name = canonical_key(each);
    if (PyDict_Contains(known.before.get(), each) != 1)
      known.source->assume(Check::missing, name.get());
    else
      world_.went_by(
          {NumberOp::call, 0, PyRef::share(contains_function()), {}, {dict, world_.step_of(name.get())}},
          Py_True);
  }
  return true;
}

PyObject* Lengths::length(PyObject* container) {
  PyObject* length = PyLong_FromSsize_t(native_length(container));
  Known* known = known_by_ends(container);
  if (!known) known = world_.find(container);
  const bool is_constant = known && known->source->access == Access::constant && PyTuple_Check(container);
  if (!known || is_constant) return length;
  if (known->keys && !tell_written_keys(*known)) return world_.read_length(container), length;
  return world_.follow(length, length_now(*known));
}

void Lengths::note_length(Known& known, Relation relation, Py_ssize_t number) {
  const Sym length = length_now(known);
  if (!length.is_const()) world_.notes->add(length, relation, Sym(number));
}

Known* Lengths::known_by_ends(PyObject* container) {
  const bool tuple = PyTuple_CheckExact(container);
  Known* known = tuple || PyList_Check(container) || is_deque(container) ? world_.find(container) : nullptr;
  if (known && tuple && !known->by_ends) return nullptr;
  if (const auto made = known ? made_of_.end() : made_of_.find(container); made != made_of_.end())
    known = &made->second;
  return known && !known->read_whole ? known : nullptr;
}

Access Lengths::access_of(const Known& known) {
  PyObject* container = (known.of ? known.of : &known)->object.get();
  return PyTuple_Check(container)  ? Access::tuple_item
         : PyList_Check(container) ? Access::list_item
                                   : Access::deque_item;
}

Lengths::Parts Lengths::parts_of(const Known& known) {
  const Py_ssize_t size = native_length(known.object.get());
  if (!known.before) return {0, size, 0};
  const Window& window = known.window;
  if (window.last >= 0) return {window.put_in_front, window.last, size - window.last - window.put_in_front};
  const Py_ssize_t old = window.cleared ? 0 : native_length(known.before.get()) - window.front - window.back;
  return {window.put_in_front, old, size - old - window.put_in_front};
}

PyObject* Lengths::item_at(PyObject* container, Py_ssize_t index) {
  Known& known = *known_by_ends(container);
  const Py_ssize_t size = native_length(container);
  if (index >= size) return note_length(known, Relation::le, index), nullptr;
  if (index < -size) return note_length(known, Relation::lt, -index), nullptr;
  PyObject* item = native_item(container, index < 0 ? index + size : index);
  const auto [in_front, old, behind] = parts_of(known);
  const bool from_end = index < 0;
  // How many items lie between it and that end, of those that were there.
  Py_ssize_t at = (from_end ? -index - 1 : index) - (from_end ? behind : in_front);
  if (at < 0) return item;
  if (at >= old)
    return note_length(known, Relation::eq, size), item;  // put at the other end: all in between count
  if (!known.placed.empty() &&
      world_.places.is_placed(known, from_end ? length_now(known) + Sym(index) : Sym(index),
                              from_end ? index + size : index))
    return item;
  if (known.window.last >= 0)
    return world_.found(item, place_of(known, (from_end ? -at : at - old + 1) - known.window.back - 1));
  const Py_ssize_t others = from_end ? known.window.front : known.window.back;
  at += from_end ? known.window.back : known.window.front;
  if (const Sym before = others ? length_before(known) : Sym(0); !before.is_const())
    world_.notes->add(Sym(at + others), Relation::lt, before);
  return world_.found(item, place_of(known, from_end ? -at - 1 : at));
}

/// Of item `index` of those that were there, counted from the front where their number is guarded.
Source* Lengths::place_of(const Known& known, Py_ssize_t index) {
  const Known& outside = known.of ? *known.of : known;
  const bool is_guarded = outside.length && world_.expression(outside.length.get()).is_const();
  if (index < 0 && is_guarded) index += PyLong_AsSsize_t(outside.length.get());
  return world_.tree->child(known.source, access_of(known), nullptr, index);
}

std::optional<Py_ssize_t> Lengths::index_from_end(PyObject* sequence, PyObject* index) {
  Known* known = world_.followed(index) ? known_by_ends(sequence) : nullptr;
  if (!known || !(known->of ? known->of : known)->length) return std::nullopt;
  const Sym from_end = world_.expression(index) - length_now(*known);
  if (!from_end.is_const() || from_end.value() >= 0) return std::nullopt;
  if (from_end.value() < -native_length(sequence))
    return std::nullopt;  // Python takes it for one from the end
  return from_end.value();
}

PyObject* Lengths::end_of(PyObject* sequence, PyObject* slice) {
  constexpr Py_ssize_t kMost = 64;
  if (is_deque(sequence) || !known_by_ends(sequence)) return nullptr;
  const auto& [start, stop, step] = [&] {
    auto* parts = reinterpret_cast<PySliceObject*>(slice);
    return std::tuple(parts->start, parts->stop, parts->step);
  }();
  const bool last = PyLong_CheckExact(start) && stop == Py_None;
  if (step != Py_None || !(last || (start == Py_None && PyLong_CheckExact(stop)))) return nullptr;
  PyObject* bound = last ? start : stop;
  if (world_.follows_number(bound)) return nullptr;
  const Py_ssize_t number = PyLong_AsSsize_t(bound), n = last ? -number : number;
  if (PyErr_Occurred()) return PyErr_Clear(), nullptr;
  if (n < 1 || n > kMost || n > Py_SIZE(sequence)) return nullptr;
  PyRef items = PyRef::steal(PyList_New(n));
  for (Py_ssize_t i = 0; items && i < n; ++i)
    PyList_SET_ITEM(items.get(), i, Py_NewRef(world_.sequence_item(sequence, last ? i - n : i)));
  return items && PyTuple_Check(sequence) ? PyList_AsTuple(items.get()) : items.release();
}

bool Lengths::is_own_item(PyObject* container, PyObject* index) {
  const Known* known = known_by_ends(container);
  if (!known || !known->before || !PyLong_CheckExact(index)) return false;
  int overflow = 0;
  const long long at = PyLong_AsLongLongAndOverflow(index, &overflow);
  const Parts parts = parts_of(*known);
  return !overflow && (at < 0 ? -at <= parts.behind : at < parts.in_front);
}

}  // namespace bolt::observe

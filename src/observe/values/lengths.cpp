// observe/values/lengths.cpp
// Lists, deques, dicts and sets from outside that are longer or shorter from call to call: what the run knows
// of their length (see world.h).
//
//   self.history.append(loss)          the length is n0 + 1, n0 being what it was before the run
//   if len(self.history) > 10: ...     the fact n0 + 1 <= 10
//   self.history[-3]                   the last but one of those that were there: item -2
//
// The length before the run is guarded, or, where it differs between calls, a followed number like any other:
// a step that asks for it. What the run puts in or takes away is the same in every call, so the length at any
// time is that and a constant. Whoever goes through the container reads how long it is (World::read_whole).
#include <tuple>

#include "guard/iterators.h"
#include "observe/world.h"
#include "python/slots.h"

namespace bolt::observe {

Py_ssize_t native_length(PyObject* container) {
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  return is_set(container) ? PySet_GET_SIZE(container) : Py_SIZE(container);
}

/// A number or text, the same in every call.
static bool is_plain_constant(PyObject* key) { return PyLong_CheckExact(key) || PyUnicode_CheckExact(key); }

Sym World::length_before(Known& known) {
  if (known.of) return length_before(*known.of);
  PyObject* contents = known.before ? known.before.get() : known.object.get();
  if (!known.length) {
    known.length = PyRef::steal(PyLong_FromSsize_t(native_length(contents)));
    if (known.read_whole || !hooks_.follows_length(*known.source, tree->root_names)) {
      known.source->assume(Check::length, nullptr, native_length(contents));
    } else {
      using guard::NumberOp;
      static PyObject* const len = PyDict_GetItemString(PyEval_GetBuiltins(), "len");
      const int container = numbers.add({NumberOp::source, tree->keep(known.source), {}, {}, {}});
      known.length = PyRef::steal(
          computed(known.length.release(), {NumberOp::call, 0, PyRef::share(len), {}, {container}}));
    }
  }
  return expression(known.length.get());
}

Sym World::length_now(Known& known) {
  const bool is_told = (known.window.cleared && !known.read_whole) || known.window.last >= 0;
  if (is_told) return native_length(known.object.get());
  const Py_ssize_t before = native_length(known.before ? known.before.get() : known.object.get());
  return length_before(known) + Sym(native_length(known.object.get()) - before);
}

/// Which of the keys that the run wrote were there before it. False: of some that is not told.
bool World::tell_written_keys(Known& known) {
  if (known.window.cleared || is_set(known.object.get())) return true;  // of a set it has been told
  using guard::NumberOp;
  std::vector<PyObject*> keys;
  Py_ssize_t position = 0;
  PyObject *key, *how;
  while (PyDict_Next(known.keys.get(), &position, &key, &how)) {
    if (is_followed_key(key)) continue;  // it has been told
    if (!is_plain_constant(key)) return false;
    if (known.window.front && PyDict_Contains(known.before.get(), key) != 0) return false;  // or has it gone?
    keys.push_back(key);
  }
  const int dict = keys.empty() ? -1 : numbers.add({NumberOp::source, tree->keep(known.source), {}, {}, {}});
  for (PyObject* each : keys) {
    const PyRef name = canonical_key(each);
    if (PyDict_Contains(known.before.get(), each) != 1)
      known.source->assume(Check::missing, name.get());
    else
      went_by({NumberOp::call, 0, PyRef::share(contains_function()), {}, {dict, step_of(name.get())}},
              Py_True);
  }
  return true;
}

PyObject* World::length(PyObject* container) {
  PyObject* length = PyLong_FromSsize_t(native_length(container));
  Known* known = known_by_ends(container);
  if (!known) known = find(container);
  const bool is_constant = known && known->source->access == Access::constant && PyTuple_Check(container);
  if (!known || is_constant) return length;
  if (known->keys && !tell_written_keys(*known)) return read_length(container), length;
  return follow(length, length_now(*known));
}

void World::note_length(Known& known, Relation relation, Py_ssize_t number) {
  const Sym length = length_now(known);
  if (!length.is_const()) notes->add(length, relation, Sym(number));
}

Known* World::known_by_ends(PyObject* container) {
  const bool tuple = PyTuple_CheckExact(container);
  Known* known = tuple || PyList_Check(container) || is_deque(container) ? find(container) : nullptr;
  if (known && tuple && !known->by_ends) return nullptr;
  if (const auto made = known ? made_of_.end() : made_of_.find(container); made != made_of_.end())
    known = &made->second;
  return known && !known->read_whole ? known : nullptr;
}

namespace {

PyObject* native_deque() {
  static PyTypeObject* const type = native_type("collections", "deque");
  return reinterpret_cast<PyObject*>(type);
}

/// Borrowed: the container holds it.
PyObject* native_item(PyObject* container, Py_ssize_t index) {
  if (is_sequence(container)) return PySequence_Fast_GET_ITEM(container, index);
  const PyRef item = PyRef::steal(
      reinterpret_cast<PyTypeObject*>(native_deque())->tp_as_sequence->sq_item(container, index));
  return item.get();
}

int set_native_item(PyObject* container, Py_ssize_t index, PyObject* item) {
  if (PyList_Check(container)) return PyList_SetItem(container, index, Py_NewRef(item));
  return reinterpret_cast<PyTypeObject*>(native_deque())->tp_as_sequence->sq_ass_item(container, index, item);
}

}  // namespace

Access World::access_of(const Known& known) {
  PyObject* container = (known.of ? known.of : &known)->object.get();
  return PyTuple_Check(container)  ? Access::tuple_item
         : PyList_Check(container) ? Access::list_item
                                   : Access::deque_item;
}

World::Parts World::parts_of(const Known& known) {
  const Py_ssize_t size = native_length(known.object.get());
  if (!known.before) return {0, size, 0};
  const Window& window = known.window;
  if (window.last >= 0) return {window.put_in_front, window.last, size - window.last - window.put_in_front};
  const Py_ssize_t old = window.cleared ? 0 : native_length(known.before.get()) - window.front - window.back;
  return {window.put_in_front, old, size - old - window.put_in_front};
}

PyObject* World::item_at(PyObject* container, Py_ssize_t index) {
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
  if (!known.placed.empty() && is_placed(known, from_end ? length_now(known) + Sym(index) : Sym(index),
                                         from_end ? index + size : index))
    return item;
  if (known.window.last >= 0)
    return found(item, place_of(known, (from_end ? -at : at - old + 1) - known.window.back - 1));
  const Py_ssize_t others = from_end ? known.window.front : known.window.back;
  at += from_end ? known.window.back : known.window.front;
  if (const Sym before = others ? length_before(known) : Sym(0); !before.is_const())
    notes->add(Sym(at + others), Relation::lt, before);
  return found(item, place_of(known, from_end ? -at - 1 : at));
}

/// Of item `index` of those that were there, counted from the front where their number is guarded.
Source* World::place_of(const Known& known, Py_ssize_t index) {
  const Known& outside = known.of ? *known.of : known;
  const bool is_guarded = outside.length && expression(outside.length.get()).is_const();
  if (index < 0 && is_guarded) index += PyLong_AsSsize_t(outside.length.get());
  return tree->child(known.source, access_of(known), nullptr, index);
}

std::optional<Py_ssize_t> World::index_from_end(PyObject* sequence, PyObject* index) {
  Known* known = followed(index) ? known_by_ends(sequence) : nullptr;
  if (!known || !(known->of ? known->of : known)->length) return std::nullopt;
  const Sym from_end = expression(index) - length_now(*known);
  if (!from_end.is_const() || from_end.value() >= 0) return std::nullopt;
  if (from_end.value() < -native_length(sequence))
    return std::nullopt;  // Python takes it for one from the end
  return from_end.value();
}

PyObject* World::end_of(PyObject* sequence, PyObject* slice) {
  constexpr Py_ssize_t kMost = 64;
  if (is_deque(sequence) || !known_by_ends(sequence)) return nullptr;
  const auto& [start, stop, step] = [&] {
    auto* parts = reinterpret_cast<PySliceObject*>(slice);
    return std::tuple(parts->start, parts->stop, parts->step);
  }();
  const bool last = PyLong_CheckExact(start) && stop == Py_None;
  if (step != Py_None || !(last || (start == Py_None && PyLong_CheckExact(stop)))) return nullptr;
  PyObject* bound = last ? start : stop;
  if (follows_number(bound)) return nullptr;
  const Py_ssize_t number = PyLong_AsSsize_t(bound), n = last ? -number : number;
  if (PyErr_Occurred()) return PyErr_Clear(), nullptr;
  if (n < 1 || n > kMost || n > Py_SIZE(sequence)) return nullptr;
  PyRef items = PyRef::steal(PyList_New(n));
  for (Py_ssize_t i = 0; items && i < n; ++i)
    PyList_SET_ITEM(items.get(), i, Py_NewRef(sequence_item(sequence, last ? i - n : i)));
  return items && PyTuple_Check(sequence) ? PyList_AsTuple(items.get()) : items.release();
}

bool World::is_own_item(PyObject* container, PyObject* index) {
  const Known* known = known_by_ends(container);
  if (!known || !known->before || !PyLong_CheckExact(index)) return false;
  int overflow = 0;
  const long long at = PyLong_AsLongLongAndOverflow(index, &overflow);
  const Parts parts = parts_of(*known);
  return !overflow && (at < 0 ? -at <= parts.behind : at < parts.in_front);
}

/// An item that is taken out and given away. A number is only carried along until something reads it.
PyObject* World::outside_item(PyObject* item, Source* place) {
  PyObject* own =
      can_be_followed(item) && !follows_number(item) && !leaves_.count(place) && !place->has(Check::equals)
          ? own_number(item)
          : nullptr;
  if (!own) return PyErr_Clear(), found(item, place);
  const PyRef held = PyRef::steal(own);
  stands_for(own, item);
  return carried(own, place);
}

void World::take(PyObject* container, bool in_front, bool is_read) {
  Known* known = copied(container);
  if (!known) return;
  const Py_ssize_t size = native_length(container);
  if (size == 0) return note_length(*known, Relation::eq, 0);
  const Parts parts = parts_of(*known);
  Window& window = known->window;
  const bool is_own = (in_front ? parts.in_front : parts.behind) > 0;
  if (!is_own && parts.old == 0) note_length(*known, Relation::eq, size);  // it was put at the other end
  if (is_own || parts.old == 0) {
    if (in_front == is_own) --window.put_in_front;
    return;
  }
  const bool is_met = is_read && !(in_front ? window.back : window.front);  // a guard says that it is there
  if (const Sym before = is_met ? Sym(0) : length_before(*known); !before.is_const())
    notes->add(Sym(window.front + window.back), Relation::lt, before);
  if (is_read) {
    const Py_ssize_t at = in_front ? window.front : -window.back - 1;
    const Py_ssize_t index = in_front ? 0 : size - 1;
    PyObject* item = native_item(container, index);
    PyObject* own = outside_item(item, place_of(*known, at));
    if (own != item && set_native_item(container, index, own) < 0) PyErr_Clear();
  }
  may_lose(*known);
  ++(in_front ? window.front : window.back);
}

void World::about_to_take(PyObject* container, bool in_front, bool is_read) {
  const Known* known = known_by_ends(container);
  known && known->placed.empty() && known->window.last < 0 ? take(container, in_front, is_read)
                                                           : about_to_write(container);
}

/// A deque that is full lets go of what lies at the other end. False: it holds nothing at all.
bool World::makes_room(PyObject* container, bool in_front) {
  const Py_ssize_t most = is_deque(container) ? guard::longest(container) : -1,
                   size = native_length(container);
  if (most <= 0) return most != 0;
  note_length(*find(container), size < most ? Relation::lt : Relation::eq, most);
  if (size == most) take(container, !in_front, false);
  return true;
}

void World::about_to_put(PyObject* container, bool in_front) {
  Known* known = known_by_ends(container) ? copied(container) : nullptr;
  if (!known || (in_front && !known->placed.empty())) return about_to_write(container);
  known->window.put_in_front += makes_room(container, in_front) && in_front;
}

void World::about_to_delete(PyObject* container, PyObject* index) {
  int overflow = 0;
  const long long at = PyLong_CheckExact(index) ? PyLong_AsLongLongAndOverflow(index, &overflow) : 1;
  if (at != 0 && at != -1) return about_to_write(container);
  about_to_take(container, at == 0, false);
}

namespace {

/// What lies at one end of a list of `size` items: how many of them, and, where that goes by how long the
/// list is, of how many at the other end it leaves.
struct End {
  bool in_front;
  Py_ssize_t count;
  std::optional<Py_ssize_t> rest;
};
std::optional<End> end_meant(Py_ssize_t first, std::optional<Py_ssize_t> stop, Py_ssize_t size) {
  if (first && stop) return std::nullopt;
  const Py_ssize_t bound = stop.value_or(first);
  const bool counted = stop ? bound >= 0 : bound < 0;  // from its own end
  const Py_ssize_t n = bound < 0 ? -bound : bound;
  if (counted) return End{stop.has_value(), std::min(n, size), {}};
  return End{stop.has_value(), std::max<Py_ssize_t>(size - n, 0), n};
}

}  // namespace

bool World::cut(PyObject* list, PyObject* slice) {
  constexpr Py_ssize_t kMost = 64;
  Known* known = PyList_CheckExact(list) && PySlice_Check(slice) ? known_by_ends(list) : nullptr;
  if (!known || known->of || !known->placed.empty()) return false;
  const Py_ssize_t size = PyList_GET_SIZE(list);
  const auto bounds = constant_bounds(slice);
  const auto end = bounds ? end_meant(bounds->first, bounds->second, size) : std::nullopt;
  if (!end || end->count > kMost) return false;
  if (end->rest)
    note_length(*known, end->count ? Relation::eq : Relation::le, end->count ? size : *end->rest);
  for (Py_ssize_t i = 0; i < end->count; ++i) {
    take(list, end->in_front, false);
    const Py_ssize_t at = end->in_front ? 0 : PyList_GET_SIZE(list) - 1;
    if (PyList_SetSlice(list, at, at + 1, nullptr) < 0) PyErr_Clear();
  }
  // Of one that ended with these, it would have gone on where there are more.
  if (!end->rest && end->count == size) note_length(*known, Relation::eq, 0);
  const bool is_own = end->rest && end->count && parts_of(*known).old == 0;
  if (is_own) about_to_clear(list);  // what is left the run put there
  return true;
}

bool World::about_to_clear(PyObject* container) {
  Known* known = find(container);
  if (!known || known->read_whole || !copied(container)) return false;
  may_lose(*known);
  known->window = {};
  known->window.cleared = true;
  known->keys = {};
  known->placed.clear();
  return true;
}

bool World::about_to_move(PyObject* dict, PyObject* key) {
  Known* known = find(dict);
  if (!known || known->read_whole || !is_plain_constant(key) || PyDict_Contains(dict, key) != 1) return false;
  dict_get(dict, key);
  if (known->read_whole || !copied(dict)) return false;
  if (!known->keys) known->keys = PyRef::steal(PyDict_New());
  PyObject* const keys = known->keys.get();
  const auto noted = written_as(PyDict_GetItemWithError(keys, key));
  if (noted) PyDict_DelItem(keys, key);
  PyDict_SetItem(keys, key,
                 mark_of(!noted                  ? Written::moved
                         : noted == Written::put ? Written::moved_and_put
                                                 : *noted));
  return true;
}

/// Was none of the keys that the run wrote there before it?
bool World::owns_new_keys(Known& known) {
  if (!known.keys) return true;
  if (!tell_written_keys(known)) return false;
  Py_ssize_t position = 0;
  PyObject *key, *how;
  while (PyDict_Next(known.keys.get(), &position, &key, &how))
    if (PyDict_Contains(known.before.get(), key) != 0) return false;
  return true;
}

bool World::about_to_take_last(PyObject* dict) {
  Known* known = find(dict);
  PyObject* const written = known && !known->read_whole ? known->keys.get() : nullptr;
  const PyRef keys = written ? native_items(dict) : PyRef();
  const Py_ssize_t size = keys ? PyList_GET_SIZE(keys.get()) : 0;
  PyObject* const last = size ? PyList_GET_ITEM(keys.get(), size - 1) : nullptr;
  const bool is_own = last && holds_key_itself(written, last) && tell_written_keys(*known) &&
                      !known->window.cleared && PyDict_Contains(known->before.get(), last) == 0;
  if (is_own) about_to_write_item(dict, last, true);
  return is_own;
}

bool World::about_to_take_first(PyObject* dict) {
  Known* known = find(dict);
  if (!known || known->read_whole || !owns_new_keys(*known) || !copied(dict)) return false;
  Py_ssize_t& gone = known->window.front;
  if (gone >= PyDict_GET_SIZE(known->before.get())) return false;
  if (const Sym length = length_before(*known); !length.is_const())
    notes->add(Sym(gone), Relation::lt, length);
  may_lose(*known);
  known->first = {};
  return ++gone, true;
}

}  // namespace bolt::observe

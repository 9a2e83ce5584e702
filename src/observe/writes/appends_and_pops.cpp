// observe/writes/appends_and_pops.cpp
// What the run puts at the ends of a list or deque from outside, takes from there, or moves within a dict ->
// what is left of what was there before (Window), also where the length of it differs between calls.
//
// Such a write needs to know neither how long the container is nor what else is in it, so neither is read
// (values/lengths.h). Any other write reads the container whole (Writes::about_to_write).
#include <algorithm>
#include <optional>

#include "guard/iterators.h"
#include "observe/world.h"

namespace bolt::observe {

void Lengths::take(PyObject* container, bool in_front, bool is_read) {
  Known* known = world_.writes.copied(container);
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
    world_.notes->add(Sym(window.front + window.back), Relation::lt, before);
  if (is_read) {
    const Py_ssize_t at = in_front ? window.front : -window.back - 1;
    const Py_ssize_t index = in_front ? 0 : size - 1;
    PyObject* item = native_item(container, index);
    PyObject* own = world_.outside_item(item, place_of(*known, at));
    if (own != item && set_native_item(container, index, own) < 0) PyErr_Clear();
  }
  world_.goodbyes.may_lose(*known);
  ++(in_front ? window.front : window.back);
}

void Lengths::about_to_take(PyObject* container, bool in_front, bool is_read) {
  const Known* known = known_by_ends(container);
  known && known->placed.empty() && known->window.last < 0 ? take(container, in_front, is_read)
                                                           : world_.writes.about_to_write(container);
}

/// A deque that is full lets go of what lies at the other end. False: it holds nothing at all.
bool Lengths::makes_room(PyObject* container, bool in_front) {
  const Py_ssize_t most = is_deque(container) ? guard::longest(container) : -1,
                   size = native_length(container);
  if (most <= 0) return most != 0;
  note_length(*world_.find(container), size < most ? Relation::lt : Relation::eq, most);
  if (size == most) take(container, !in_front, false);
  return true;
}

void Lengths::about_to_put(PyObject* container, bool in_front) {
  Known* known = known_by_ends(container) ? world_.writes.copied(container) : nullptr;
  if (!known || (in_front && !known->placed.empty())) return world_.writes.about_to_write(container);
  known->window.put_in_front += makes_room(container, in_front) && in_front;
}

void Lengths::about_to_delete(PyObject* container, PyObject* index) {
  int overflow = 0;
  const long long at = PyLong_CheckExact(index) ? PyLong_AsLongLongAndOverflow(index, &overflow) : 1;
  if (at != 0 && at != -1) return world_.writes.about_to_write(container);
  about_to_take(container, at == 0, false);
}

namespace {

/// What lies at one end of a list of `size` items: how many of them, and, where that goes by how long the
/// list is, of how many at the other end it leaves.
struct ListEnd {
  bool in_front;
  Py_ssize_t count;
  std::optional<Py_ssize_t> rest;
};
std::optional<ListEnd> end_meant(Py_ssize_t first, std::optional<Py_ssize_t> stop, Py_ssize_t size) {
  if (first && stop) return std::nullopt;
  const Py_ssize_t bound = stop.value_or(first);
  const bool counted = stop ? bound >= 0 : bound < 0;  // from its own end
  const Py_ssize_t n = bound < 0 ? -bound : bound;
  if (counted) return ListEnd{stop.has_value(), std::min(n, size), {}};
  return ListEnd{stop.has_value(), std::max<Py_ssize_t>(size - n, 0), n};
}

}  // namespace

bool Lengths::cut(PyObject* list, PyObject* slice) {
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

bool Lengths::about_to_clear(PyObject* container) {
  Known* known = world_.find(container);
  if (!known || known->read_whole || !world_.writes.copied(container)) return false;
  world_.goodbyes.may_lose(*known);
  known->window = {};
  known->window.cleared = true;
  known->keys = {};
  known->placed.clear();
  return true;
}

bool Lengths::about_to_move(PyObject* dict, PyObject* key) {
  Known* known = world_.find(dict);
  if (!known || known->read_whole || !is_plain_constant(key) || PyDict_Contains(dict, key) != 1) return false;
  world_.dict_get(dict, key);
  if (known->read_whole || !world_.writes.copied(dict)) return false;
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
bool Lengths::owns_new_keys(Known& known) {
  if (!known.keys) return true;
  if (!tell_written_keys(known)) return false;
  Py_ssize_t position = 0;
  PyObject *key, *how;
  while (PyDict_Next(known.keys.get(), &position, &key, &how))
    if (PyDict_Contains(known.before.get(), key) != 0) return false;
  return true;
}

bool Lengths::about_to_take_last(PyObject* dict) {
  Known* known = world_.find(dict);
  PyObject* const written = known && !known->read_whole ? known->keys.get() : nullptr;
  const PyRef keys = written ? native_items(dict) : PyRef();
  const Py_ssize_t size = keys ? PyList_GET_SIZE(keys.get()) : 0;
  PyObject* const last = size ? PyList_GET_ITEM(keys.get(), size - 1) : nullptr;
  const bool is_own = last && holds_key_itself(written, last) && tell_written_keys(*known) &&
                      !known->window.cleared && PyDict_Contains(known->before.get(), last) == 0;
  if (is_own) world_.writes.about_to_write_item(dict, last, true);
  return is_own;
}

bool Lengths::about_to_take_first(PyObject* dict) {
  Known* known = world_.find(dict);
  if (!known || known->read_whole || !owns_new_keys(*known) || !world_.writes.copied(dict)) return false;
  Py_ssize_t& gone = known->window.front;
  if (gone >= PyDict_GET_SIZE(known->before.get())) return false;
  if (const Sym length = length_before(*known); !length.is_const())
    world_.notes->add(Sym(gone), Relation::lt, length);
  world_.goodbyes.may_lose(*known);
  known->first = {};
  return ++gone, true;
}

bool Lengths::about_to_take_first(PyObject* dict, PyObject* key) {
  Known* known = world_.find(dict);
  if (!known || !known->first || known->first.get() != key) return false;
  return about_to_take_first(dict);
}

}  // namespace bolt::observe

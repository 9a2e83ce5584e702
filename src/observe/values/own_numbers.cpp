// observe/values/own_numbers.cpp
// A tuple, slice, list, deque or dict from outside with numbers that differ between calls -> one in which
// each of those has an address of its own for as long as the region is recorded, by which it is told from
// equal ones (World::stands_for).
//
//   a tuple or slice is not written to: a twin stands for it, made of the parts as they are followed
//   in a list, deque or dict they lie in the container itself, until they are given back (give_back.h)
#include <algorithm>

#include "guard/leaf.h"
#include "observe/world.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

/// Calls visit(part, where it lies, its index or key) for each part of a tuple, list, deque, dict or slice.
template <class Visit>
void for_each_part(guard::SourceTree& tree, PyObject* whole, Source* source, Visit visit) {
  if (PySlice_Check(whole)) {
    auto* slice = reinterpret_cast<PySliceObject*>(whole);
    const std::pair<const char*, PyObject**> fields[] = {
        {"start", &slice->start}, {"stop", &slice->stop}, {"step", &slice->step}};
    for (const auto& [name, at] : fields) {
      const auto offset = reinterpret_cast<char*>(at) - reinterpret_cast<char*>(slice);
      PyRef text = PyRef::steal(PyUnicode_InternFromString(name));
      visit(*at, tree.child(source, Access::field, text.get(), offset), text.get());
    }
    return;
  }
  const PyRef items = is_sequence(whole) ? PyRef::share(whole) : native_items(whole);
  const Access step = PyTuple_Check(whole)  ? Access::tuple_item
                      : PyList_Check(whole) ? Access::list_item
                                            : Access::deque_item;
  for (Py_ssize_t i = 0; items && i < Py_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (!PyDict_Check(whole)) {
      const PyRef index = PyRef::steal(PyLong_FromSsize_t(i));
      visit(item, tree.child(source, step, nullptr, i), index.get());
    } else if (PyUnicode_CheckExact(item) || PyLong_CheckExact(item)) {
      const PyRef key = canonical_key(item);
      if (PyObject* value = PyDict_GetItemWithError(whole, key.get()))
        visit(value, tree.child(source, Access::dict_item, key.get()), key.get());
    }
  }
}

bool is_list_or_deque(PyObject* object) {
  static PyTypeObject* const deque = native_type("collections", "deque");
  return PyList_CheckExact(object) || Py_IS_TYPE(object, deque);
}

/// A tuple of the same items that is no constant of the program's.
PyObject* copy_of(PyObject* tuple) {
  const PyRef items = PyRef::steal(PySequence_List(tuple));
  return items ? PyList_AsTuple(items.get()) : nullptr;
}

}  // namespace

/// Does a number in this container or slice differ between calls?
bool World::some_differ(PyObject* whole, Source* source) {
  int left = 10000;  // places, of which tuples within tuples have any number
  return hooks_.follows_within(*source, tree->root_names) && some_differ(whole, source, left);
}

bool World::some_differ(PyObject* whole, Source* source, int& left) {
  bool differs = false;
  for_each_part(*tree, whole, source, [&](PyObject* part, Source* place, PyObject*) {
    if (differs || --left < 0) return;
    differs = can_be_followed(part) ? hooks_.follows_number(part, *place, tree->root_names)
                                    : guard::has_parts(part) && some_differ(part, place, left);
  });
  return differs;
}

/// Known from now on by its parts, each of which is guarded for itself.
PyObject* World::make_twin(PyObject* whole, Source* source) {
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(whole)));
  if (!PySlice_Check(whole)) source->assume(Check::length, nullptr, Py_SIZE(whole));
  std::vector<PyObject*> parts;  // held by what is known about them
  for_each_part(*tree, whole, source,
                [&](PyObject* part, Source* place, PyObject*) { parts.push_back(found(part, place)); });
  if (PySlice_Check(whole)) return PySlice_New(parts[0], parts[1], parts[2]);
  const auto size = static_cast<Py_ssize_t>(parts.size());
  PyRef twin = PyRef::steal(PyTuple_New(size));
  for (Py_ssize_t i = 0; twin && i < size; ++i) PyTuple_SET_ITEM(twin.get(), i, Py_NewRef(parts[i]));
  return twin && guard::is_torch_size(whole) ? guard::make_torch_size(twin.get()) : twin.release();
}

bool World::is_own(PyObject* part, Source* place) const {
  if (guard::has_parts(part)) return originals_.count(part) != 0;
  const auto at = leaves_.find(place);
  return at != leaves_.end() && at->second == part;
}

/// Does it still hold what was there before the run, which has only put other things beside it?
static bool still_holds(PyObject* container, const Known& known, PyObject* at, PyObject* part) {
  if (!known.before) return true;
  if (PyList_Check(container)) {
    const Py_ssize_t index = PyLong_AsSsize_t(at);
    auto is_it = [&](const PyRef& each) { return PyLong_AsSsize_t(each.get()) == index; };
    if (std::any_of(known.placed.begin(), known.placed.end(), is_it)) return false;
    return index < PyList_GET_SIZE(container) && PyList_GET_ITEM(container, index) == part;
  }
  return !(known.keys && PyDict_Contains(known.keys.get(), at) == 1) &&
         PyDict_GetItemWithError(container, at) == part;
}

/// container[at] = item, whatever a class in Python has for that.
static int set_native(PyObject* container, PyObject* at, PyObject* item) {
  if (PyODict_Check(container)) return PyODict_SetItem(container, at, item);
  return PyDict_Check(container) ? PyDict_SetItem(container, at, item)
                                 : PyObject_SetItem(container, at, item);
}

void World::own_numbers_of(PyObject* container) {
  lengths.read_if_open(container);
  if (!hooks_.follows_numbers() || !(is_list_or_deque(container) || PyDict_Check(container))) return;
  Known* known = find(container);
  if (!known || known->read_whole || (known->before && is_deque(container)) || known->window.is_moved())
    return;
  if (PyDict_Check(container) && !followed_keys.may_follow_keys(container))
    return;  // what has names as keys is read by C, too
  const PyRef before = PyRef::share(known->before.get());
  PyObject* contents = before ? before.get() : container;
  if (!some_differ(contents, known->source)) return;
  lent_numbers.push_back(container);
  for_each_part(*tree, contents, known->source, [&](PyObject* part, Source* place, PyObject* at) {
    if (!can_be_followed(part) && !guard::has_parts(part)) return;
    const PyRef own = PyRef::share(found(part, place));
    if (own.get() == part) return;
    if (still_holds(container, *known, at, part) && set_native(container, at, own.get()) < 0) PyErr_Clear();
    if (before && set_native(before.get(), at, own.get()) < 0) PyErr_Clear();
  });
  read_whole(container);
}

PyRef World::with_followed(PyObject* sequence) {
  const bool tuple = PyTuple_Check(sequence) && Py_TYPE(sequence)->tp_iter == PyTuple_Type.tp_iter;
  if (!tuple) return own_numbers_of(sequence), PyRef();
  const Known* known = hooks_.follows_numbers() ? find(sequence) : nullptr;
  if (!known || known->read_whole || !some_differ(sequence, known->source)) return {};
  PyRef twin = PyRef::steal(make_twin(sequence, known->source));
  if (!twin) PyErr_Clear();
  return twin;
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

/// A tuple whose length differs between calls. One of constants is a constant, too, which the program may
/// meet elsewhere: a copy stands for the one that was there. Null: it is another object.
PyObject* World::open_tuple(PyObject* tuple, Source* source) {
  if (!PyTuple_CheckExact(tuple) || !PyTuple_GET_SIZE(tuple)) return nullptr;
  if (const auto at = leaves_.find(source); at != leaves_.end()) return at->second;
  if (find(tuple) || twins_.count(tuple) || !hooks_.follows_length(*source, tree->root_names)) return nullptr;
  const bool leaf = guard::is_leaf(tuple);
  const PyRef mine = leaf ? PyRef::steal(copy_of(tuple)) : PyRef::share(tuple);
  if (!mine) return PyErr_Clear(), nullptr;
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(&PyTuple_Type));
  know(mine.get(), source).by_ends = true;
  open_tuples_.push_back(mine.get());
  if (!leaf) return tuple;
  stands_for(mine.get(), tuple);
  return leaves_[source] = mine.get();
}

}  // namespace bolt::observe

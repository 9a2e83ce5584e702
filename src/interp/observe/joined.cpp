// interp/observe/joined.cpp
// Tuples from outside that are longer or shorter from call to call, and the lists and tuples that the run
// makes of such a one, or of such a list: what the run knows of them (see world.h).
//
//   self.t = self.t + (x,)       what there was, and x
//   [x, *self.h[1:]]             x, and what there was but for the first
//
// They are known as a list that the run wrote to is (lengths.cpp): what is in front, what is left of what was
// there before the run, and what is behind. What was there is read as it is of the one from outside, and the
// recipe takes it from there. Who goes through one of them, or writes to it otherwise, reads that one whole.
#include <algorithm>
#include <utility>

#include "interp/observe/world.h"

namespace bolt::observe {
namespace {

PyObject* join(PyObject* args, bool tuple) {
  auto number = [&](Py_ssize_t i) { return PyLong_AsSsize_t(PyTuple_GET_ITEM(args, i)); };
  const PyRef items = PyRef::steal(PySequence_List(PyTuple_GET_ITEM(args, 0)));
  const Py_ssize_t end = items ? PyList_GET_SIZE(items.get()) - number(2) : 0;
  PyRef whole = PyRef::steal(items ? PyList_GetSlice(items.get(), number(1), end) : nullptr);
  const PyRef first = PyRef::steal(PyTuple_GetSlice(args, 4, 4 + number(3))),
              last = PyRef::steal(PyTuple_GetSlice(args, 4 + number(3), PyTuple_GET_SIZE(args)));
  if (!whole || !first || !last || PyList_SetSlice(whole.get(), 0, 0, first.get()) < 0) return nullptr;
  const Py_ssize_t size = PyList_GET_SIZE(whole.get());
  if (PyList_SetSlice(whole.get(), size, size, last.get()) < 0) return nullptr;
  return tuple ? PyList_AsTuple(whole.get()) : whole.release();
}

PyObject* join_list(PyObject*, PyObject* args) { return join(args, false); }
PyObject* join_tuple(PyObject*, PyObject* args) { return join(args, true); }

bool is_plain(PyObject* object) { return PyTuple_CheckExact(object) || PyList_CheckExact(object); }

/// A tuple of the same items that is no constant of the program's.
PyObject* copy_of(PyObject* tuple) {
  const PyRef items = PyRef::steal(PySequence_List(tuple));
  return items ? PyList_AsTuple(items.get()) : nullptr;
}

}  // namespace

PyObject* joining_function(bool tuple) {
  static PyMethodDef defs[] = {{"joined", join_list, METH_VARARGS, nullptr},
                               {"joined", join_tuple, METH_VARARGS, nullptr}};
  static PyObject* const functions[] = {PyCFunction_New(&defs[0], nullptr),
                                        PyCFunction_New(&defs[1], nullptr)};
  return functions[tuple];
}

const Known* World::made_of(PyObject* sequence) {
  if (made_of_.empty() || !is_plain(sequence)) return nullptr;
  const Known* known = known_by_ends(sequence);
  return known && known->of ? known : nullptr;
}

void World::read_if_open(PyObject* object) {
  const Known* known = is_plain(object) ? known_by_ends(object) : nullptr;
  if (known && (known->of || known->by_ends)) read_whole(object);
}

/// Each item of what the run made, or of the copy that stands for a tuple: numbers that differ lie there from
/// now on, as in a list (own_numbers_of).
void World::read_parts(Known& known) {
  known.read_whole = known.source->is_whole = true;
  PyObject* object = known.object.get();
  read_length((known.of ? known.of->object : known.object).get());
  const auto [in_front, old, behind] = parts_of(known);
  for (Py_ssize_t i = 0; i < old; ++i) {
    PyObject*& item = PySequence_Fast_ITEMS(object)[in_front + i];
    Source* place = tree->child(known.source, access_of(known), nullptr, known.window.front + i);
    if (PyObject* own = found(item, place); own != item) Py_SETREF(item, Py_NewRef(own));
  }
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

/// One whose length is followed, and of which what was there is as it was; null: it is another object.
Known* World::followed_by_ends(PyObject* sequence) {
  Known* known = is_plain(sequence) ? known_by_ends(sequence) : nullptr;
  if (!known || known->window.cleared || !known->placed.empty() || !Py_SIZE(sequence)) return nullptr;
  return length_before(*known).is_const() ? nullptr : known;
}

void World::make_of(PyObject* made, Known& of, Window window) {
  Known& known = made_of_[made];
  known.of = of.of ? of.of : &of;
  known.source = of.source;
  known.object = PyRef::share(made);
  PyObject* contents = of.before ? of.before.get() : of.object.get();
  known.before = PyTuple_Check(contents) || of.before ? PyRef::share(contents) : native_items(contents);
  known.window = window;
  also_held(made);
  note_copy(known);
}

PyObject* World::concatenated(PyObject* left, PyObject* right) {
  if (!is_plain(left) || Py_TYPE(left) != Py_TYPE(right)) return nullptr;
  Known* of = followed_by_ends(left);
  PyObject* other = of ? right : left;
  if (!of) of = followed_by_ends(right);
  if (!of || other == of->object.get()) return nullptr;
  note_length(*of, Relation::ne, 0);  // of an empty tuple the other is the sum
  own_numbers_of(other);
  read_whole(other);
  PyObject* sum = PySequence_Concat(left, right);
  if (!sum || sum == of->object.get()) return sum;
  Window window = of->window;
  window.put_in_front = parts_of(*of).in_front + (other == left ? Py_SIZE(left) : 0);
  return make_of(sum, *of, window), sum;
}

/// xs[-3:], xs[:3], at least as long: item by item. Null: not here.
PyObject* World::slice_of(PyObject* sequence, PyObject* slice) {
  PyObject* items = end_of(sequence, slice);
  return items ? items : part_of(sequence, slice);
}

/// xs[2:], xs[:-1], xs[1:-1], longer than that.
PyObject* World::part_of(PyObject* sequence, PyObject* slice) {
  auto* bounds = reinterpret_cast<PySliceObject*>(slice);
  auto constant = [&](PyObject* bound) -> Py_ssize_t {
    if (bound == Py_None) return 0;
    const bool known = PyLong_CheckExact(bound) && !follows_number(bound) && _PyLong_NumBits(bound) < 32;
    return known ? PyLong_AsSsize_t(bound) : -1;
  };
  if (bounds->step != Py_None || !is_plain(sequence)) return nullptr;
  const PyRef turned = PyRef::steal(PyLong_CheckExact(bounds->stop) && !follows_number(bounds->stop)
                                        ? PyNumber_Negative(bounds->stop)
                                        : Py_NewRef(bounds->stop));
  const Py_ssize_t first = constant(bounds->start), last = constant(turned.get());
  if (first < 0 || last < 0 || (bounds->stop != Py_None && last == 0)) return nullptr;
  Known* of = followed_by_ends(sequence);
  if (!of) return nullptr;
  const auto [in_front, old, behind] = parts_of(*of);
  Window window = of->window;
  window.front += std::max<Py_ssize_t>(first - in_front, 0);
  window.back += std::max<Py_ssize_t>(last - behind, 0);
  window.put_in_front = std::max<Py_ssize_t>(in_front - first, 0);
  if (window.front + window.back >= native_length(of->before ? of->before.get() : of->object.get()))
    return nullptr;
  notes->add(Sym(window.front + window.back), Relation::lt, length_before(*of));
  PyObject* part = PySequence_GetSlice(sequence, first, Py_SIZE(sequence) - last);
  if (part && part != sequence) make_of(part, *of, window);
  return part;
}

PyObject* World::tuple_of(PyObject* list) {
  const auto at = made_of_.find(list);
  if (at == made_of_.end() || at->second.read_whole) return nullptr;
  PyObject* tuple = PyList_AsTuple(list);
  Window window = at->second.window;
  if (tuple) make_of(tuple, at->second, window);
  return tuple;
}

Known* World::begin_extension(PyObject* list, PyObject* items) {
  if (!PyList_CheckExact(list) || find(list) || made_of_.count(list)) return nullptr;
  Known* of = followed_by_ends(items);
  if (of) note_length(*of, Relation::ne, 0);
  return of;
}

void World::end_extension(PyObject* list, Known* of, Py_ssize_t size_before) {
  Window window = of->window;
  window.put_in_front = parts_of(*of).in_front + size_before;
  make_of(list, *of, window);
}

}  // namespace bolt::observe

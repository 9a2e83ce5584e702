// observe/values/joined.cpp
// A list or tuple that the run makes of one from outside whose length differs between calls -> what is known
// of it: which part of the one from outside it holds, and what the run put beside that (Lengths).
//
//   self.t = self.t + (x,)       what there was, and x
//   [x, *self.h[1:]]             x, and what there was but for the first
//
// They are known as a list that the run wrote to is (lengths.cpp): what is in front, what is left of what was
// there before the run, and what is behind. What was there is read as it is of the one from outside, and the
// recipe takes it from there. Who goes through one of them, or writes to it otherwise, reads that one whole.
#include <algorithm>
#include <utility>

#include "observe/world.h"

namespace bolt::observe {

bool is_exact_number(PyObject* object) {
  int overflow = 0;
  return PyFloat_CheckExact(object) ||
         (PyLong_CheckExact(object) && (PyLong_AsLongLongAndOverflow(object, &overflow), !overflow));
}

namespace {

/// What joining_function is given.
struct JoinedParts {
  static constexpr Py_ssize_t kFirst = 5;
  PyObject* args;
  PyRef items = native_sequence(PyTuple_GET_ITEM(args, 0));
  Py_ssize_t end = items ? Py_SIZE(items.get()) - number(2) : 0;
  Py_ssize_t front = number(1) < 0 ? end + number(1) : number(1), middle = end - front;
  Py_ssize_t in_front = number(3), placed = PyTuple_GET_SIZE(args) - 2 * number(4), others = placed - kFirst;

  static PyRef native_sequence(PyObject* container) {
    return is_sequence(container) ? PyRef::share(container) : native_items(container);
  }
  Py_ssize_t number(Py_ssize_t i) const { return PyLong_AsSsize_t(PyTuple_GET_ITEM(args, i)); }
  PyObject* const* given() const { return &PyTuple_GET_ITEM(args, 0); }
  PyObject* const* there() const { return PySequence_Fast_ITEMS(items.get()) + front; }
  /// Facts are looked at later.
  bool fit() const {
    bool fits = items && front >= 0 && middle >= 0;
    for (Py_ssize_t i = placed; i < PyTuple_GET_SIZE(args); i += 2)
      fits = fits && number(i) >= 0 && number(i) < middle;
    return fits;
  }
  /// Is the sum the very list that is there?
  bool add_nothing() const {
    return PyList_CheckExact(items.get()) && middle == Py_SIZE(items.get()) &&
           PyTuple_GET_SIZE(args) == kFirst;
  }
};

/// In one pass: a history may be long.
PyObject* join(PyObject* args, Joins how) {
  const JoinedParts parts{args};
  if (!parts.fit()) return PyErr_Format(PyExc_IndexError, "there are not as many items");
  const auto [there, given] = std::pair(parts.there(), parts.given());
  if (how == Joins::numbers) {
    if (!std::all_of(there, there + parts.middle, is_exact_number))
      return PyErr_Format(PyExc_TypeError, "not all of them are numbers");
    if (parts.add_nothing()) return Py_NewRef(parts.items.get());
  }
  const Py_ssize_t size = parts.middle + parts.others;
  PyRef whole = PyRef::steal(how == Joins::tuple ? PyTuple_New(size) : PyList_New(size));
  if (!whole) return nullptr;
  PyObject** to = PySequence_Fast_ITEMS(whole.get());
  auto add = [&](PyObject* const* from, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; ++i) *to++ = Py_NewRef(from[i]);
  };
  add(given + JoinedParts::kFirst, parts.in_front);
  PyObject** const middle = to;
  add(there, parts.middle);
  add(given + JoinedParts::kFirst + parts.in_front, parts.others - parts.in_front);
  for (Py_ssize_t i = parts.placed; i < PyTuple_GET_SIZE(args); i += 2)
    Py_SETREF(middle[parts.number(i)], Py_NewRef(given[i + 1]));
  return whole.release();
}

template <Joins kHow>
PyObject* joined(PyObject*, PyObject* args) {
  return join(args, kHow);
}

bool is_tuple_or_list(PyObject* object) { return PyTuple_CheckExact(object) || PyList_CheckExact(object); }

}  // namespace

PyObject* joining_function(Joins how) {
  static PyMethodDef defs[] = {{"joined", joined<Joins::list>, METH_VARARGS, nullptr},
                               {"joined", joined<Joins::tuple>, METH_VARARGS, nullptr},
                               {"joined", joined<Joins::numbers>, METH_VARARGS, nullptr}};
  static PyObject* const functions[] = {PyCFunction_New(&defs[0], nullptr),
                                        PyCFunction_New(&defs[1], nullptr),
                                        PyCFunction_New(&defs[2], nullptr)};
  return functions[static_cast<int>(how)];
}

const Known* Lengths::made_of(PyObject* sequence) {
  if (made_of_.empty() || !is_tuple_or_list(sequence)) return nullptr;
  const Known* known = known_by_ends(sequence);
  return known && known->of ? known : nullptr;
}

void Lengths::read_if_open(PyObject* object) {
  const Known* known = is_tuple_or_list(object) ? known_by_ends(object) : nullptr;
  if (known && (known->of || known->by_ends)) world_.read_whole(object);
}

/// Each item of what the run made, or of the copy that stands for a tuple: numbers that differ lie there from
/// now on, as in a list (own_numbers_of).
void Lengths::read_parts(Known& known) {
  known.read_whole = true;
  PyObject* object = known.object.get();
  const bool all = known.window.last < 0;
  if (all) world_.read_length((known.of ? known.of->object : known.object).get());
  known.source->is_whole |= all;
  const auto [in_front, old, behind] = parts_of(known);
  for (Py_ssize_t i = 0; i < old; ++i) {
    PyObject*& item = PySequence_Fast_ITEMS(object)[in_front + i];
    const Py_ssize_t at = all ? known.window.front + i : i - old - known.window.back;
    Source* place = world_.tree->child(known.source, access_of(known), nullptr, at);
    if (PyObject* own = world_.found(item, place); own != item) Py_SETREF(item, Py_NewRef(own));
  }
}

/// One whose length is followed, and of which what was there is as it was; null: it is another object.
Known* Lengths::followed_by_ends(PyObject* sequence) {
  Known* known = is_tuple_or_list(sequence) ? known_by_ends(sequence) : nullptr;
  if (!known || known->window.cleared || !known->placed.empty() || known->window.last >= 0 ||
      !Py_SIZE(sequence))
    return nullptr;
  return length_before(*known).is_const() ? nullptr : known;
}

void Lengths::make_of(PyObject* made, Known& of, Window window) {
  Known& known = made_of_[made];
  known.of = of.of ? of.of : &of;
  known.source = of.source;
  known.object = PyRef::share(made);
  PyObject* contents = of.before ? of.before.get() : of.object.get();
  known.before = PyTuple_Check(contents) || of.before ? PyRef::share(contents) : native_items(contents);
  known.window = window;
  world_.goodbyes.also_held(made);
  world_.goodbyes.note_copy(known);
}

PyObject* Lengths::concatenated(PyObject* left, PyObject* right) {
  if (!is_tuple_or_list(left) || Py_TYPE(left) != Py_TYPE(right)) return nullptr;
  Known* of = followed_by_ends(left);
  PyObject* other = of ? right : left;
  if (!of) of = followed_by_ends(right);
  if (!of || other == of->object.get()) return nullptr;
  note_length(*of, Relation::ne, 0);  // of an empty tuple the other is the sum
  world_.own_numbers_of(other);
  world_.read_whole(other);
  PyObject* sum = PySequence_Concat(left, right);
  if (!sum || sum == of->object.get()) return sum;
  Window window = of->window;
  window.put_in_front = parts_of(*of).in_front + (other == left ? Py_SIZE(left) : 0);
  return make_of(sum, *of, window), sum;
}

/// Null: not here.
PyObject* Lengths::slice_of(PyObject* sequence, PyObject* slice) {
  PyObject* part = followed_slice(sequence, slice);
  return part || PyErr_Occurred() ? part : end_of(sequence, slice);
}

/// Of one whose length is followed: its items are not read.
PyObject* Lengths::followed_slice(PyObject* sequence, PyObject* slice) {
  Known* of = followed_by_ends(sequence);
  const auto bounds = of ? constant_bounds(slice) : std::nullopt;
  if (!bounds) return nullptr;
  const auto [first, stop] = *bounds;
  // All there is; of a tuple that is the tuple itself, also where it is just as long.
  const Py_ssize_t least = Py_SIZE(sequence) + !PyTuple_Check(sequence);
  if ((first < 0 && !stop && -first >= least) || (!first && stop && *stop >= least)) {
    note_length(*of, PyTuple_Check(sequence) ? Relation::le : Relation::lt, first < 0 ? -first : *stop);
    return part_of(sequence, *of, 0, 0);
  }
  if (first < 0) return stop ? nullptr : last_of(sequence, *of, -first);
  return stop && *stop >= 0 ? nullptr : part_of(sequence, *of, first, stop ? -*stop : 0);
}

/// Of a slice of constants without a step: where it begins and, if that is said, where it ends.
std::optional<std::pair<Py_ssize_t, std::optional<Py_ssize_t>>> Lengths::constant_bounds(PyObject* slice) {
  auto* bounds = reinterpret_cast<PySliceObject*>(slice);
  auto is_constant = [&](PyObject* bound) {
    return bound == Py_None ||
           (PyLong_CheckExact(bound) && !world_.follows_number(bound) && _PyLong_NumBits(bound) < 32);
  };
  if (bounds->step != Py_None || !is_constant(bounds->start) || !is_constant(bounds->stop))
    return std::nullopt;
  const Py_ssize_t first = bounds->start == Py_None ? 0 : PyLong_AsSsize_t(bounds->start);
  if (bounds->stop == Py_None) return std::pair(first, std::optional<Py_ssize_t>());
  return std::pair(first, std::optional(PyLong_AsSsize_t(bounds->stop)));
}

/// Without as many items at either end; it has more. Null: not here.
PyObject* Lengths::part_of(PyObject* sequence, Known& of, Py_ssize_t first, Py_ssize_t last) {
  const auto [in_front, old, behind] = parts_of(of);
  Window window = of.window;
  window.front += std::max<Py_ssize_t>(first - in_front, 0);
  window.back += std::max<Py_ssize_t>(last - behind, 0);
  window.put_in_front = std::max<Py_ssize_t>(in_front - first, 0);
  if (window.front + window.back >= native_length(of.before ? of.before.get() : of.object.get()))
    return nullptr;
  world_.notes->add(Sym(window.front + window.back), Relation::lt, length_before(of));
  PyObject* part = PySequence_GetSlice(sequence, first, Py_SIZE(sequence) - last);
  if (part && part != sequence) make_of(part, of, window);
  return part;
}

/// The last n items, which reach into what was there.
PyObject* Lengths::last_of(PyObject* sequence, Known& of, Py_ssize_t n) {
  const auto [in_front, old, behind] = parts_of(of);
  Window window = of.window;
  window.last = n - behind;
  window.put_in_front = 0;
  if (window.last < 1 || window.last > old) return nullptr;
  if (PyTuple_Check(sequence)) note_length(of, Relation::ne, n);  // it would be the tuple itself
  world_.notes->add(Sym(window.front + window.back + window.last), Relation::le, length_before(of));
  PyObject* part = PySequence_GetSlice(sequence, Py_SIZE(sequence) - n, Py_SIZE(sequence));
  if (part && part != sequence) make_of(part, of, window);
  return part;
}

PyObject* Lengths::tuple_of(PyObject* list) {
  const auto at = made_of_.find(list);
  if (at == made_of_.end() || at->second.read_whole) return nullptr;
  PyObject* tuple = PyList_AsTuple(list);
  Window window = at->second.window;
  if (tuple) make_of(tuple, at->second, window);
  return tuple;
}

Known* Lengths::begin_extension(PyObject* list, PyObject* items) {
  if (!PyList_CheckExact(list) || world_.find(list) || made_of_.count(list)) return nullptr;
  Known* of = followed_by_ends(items);
  if (of) note_length(*of, Relation::ne, 0);
  return of;
}

void Lengths::end_extension(PyObject* list, Known* of, Py_ssize_t size_before) {
  Window window = of->window;
  window.put_in_front = parts_of(*of).in_front + size_before;
  make_of(list, *of, window);
}

}  // namespace bolt::observe

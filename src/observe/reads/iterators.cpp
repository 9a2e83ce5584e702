// observe/reads/iterators.cpp
// An iterator from outside that the region goes on with -> its next item, known, and a guard on where it
// stands. What it gives next is read before CPython takes it out, so that it is known when it comes. Where an
// itertools.count stands is a number like others that differ between calls.

#include "guard/iterators.h"

#include <algorithm>
#include <utility>

#include "interp/semantics.h"
#include "observe/calls/cfunctions.h"
#include "observe/world.h"

namespace bolt::observe {

using guard::IteratorKind;
using Goes = guard::IteratorKind::Goes;

namespace {

/// The iterators that zip goes along, or the one that enumerate does. `all` is what it keeps.
template <class Visit>
bool all_of_others(PyObject* all, Visit visit) {
  if (!PyTuple_Check(all)) return visit(all);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all); ++i)
    if (!visit(PyTuple_GET_ITEM(all, i))) return false;
  return true;
}

/// Is `asked` true of a container that the iterator, or one that it goes along, takes its items from?
template <class Asked>
bool goes_through(PyObject* iterator, Asked asked) {
  const IteratorKind* kind = guard::iterator_kind(iterator);
  PyObject* inside = kind ? guard::iterator_inside(iterator, *kind) : nullptr;
  if (!inside) return false;
  if (kind->goes != Goes::along_other && kind->goes != Goes::along_others) return asked(inside);
  return !all_of_others(inside, [&](PyObject* each) { return !goes_through(each, asked); });
}

bool is_understood(PyObject* iterator, int depth) {
  const IteratorKind* kind = guard::iterator_kind(iterator);
  if (!kind || depth == 0) return false;
  PyObject* inside = guard::iterator_inside(iterator, *kind);
  switch (kind->goes) {
    case Goes::through_range: return true;
    case Goes::along_sequence: return !inside || is_sequence(inside);
    case Goes::through_dict: return !inside || !PyODict_Check(inside);
    case Goes::through_odict:
    case Goes::through_set:
    case Goes::through_deque: return true;
    case Goes::along_others:
      if (guard::is_strict(iterator)) return false;
      [[fallthrough]];
    case Goes::along_other:
      return inside && all_of_others(inside, [&](PyObject* each) { return is_understood(each, depth - 1); });
  }
  return false;
}

/// itertools.count, whose struct CPython keeps to itself: `next` is null as long as the number fits.
struct Counter {
  PyObject_HEAD Py_ssize_t number;
  PyObject *next, *step;
};

PyObject* next_of_counter(PyObject*, PyObject* object) {
  auto* counter = reinterpret_cast<Counter*>(object);
  return counter->next ? Py_NewRef(counter->next) : PyLong_FromSsize_t(counter->number);
}
PyObject* step_of_counter(PyObject*, PyObject* object) {
  return Py_NewRef(reinterpret_cast<Counter*>(object)->step);
}
PyMethodDef next_def = {"next", next_of_counter, METH_O, nullptr};
PyMethodDef step_def = {"step", step_of_counter, METH_O, nullptr};

bool is_counter(PyObject* object) {
  static PyTypeObject* const type = native_type("itertools", "count");
  return Py_IS_TYPE(object, type);
}

/// Are the next number and the distance to the one behind numbers that operators can be lent?
bool counts_numbers(PyObject* object) {
  auto is_lent = [](PyObject* number) {
    int64_t value;
    return is_exact_number(number) && guard::symbol_value(number, &value);
  };
  const PyRef next = PyRef::steal(next_of_counter(nullptr, object));
  return next && is_lent(next.get()) && is_lent(reinterpret_cast<Counter*>(object)->step);
}

}  // namespace

bool World::can_advance(PyObject* iterator) {
  constexpr int kDeepest = 8;
  if (is_counter(iterator)) return counts_numbers(iterator);
  auto is_written = [&](PyObject* inside) {
    const Known* known = find(inside);
    return known && known->before;
  };
  return hooks_.may_advance() && is_understood(iterator, kDeepest) && !goes_through(iterator, is_written);
}

/// Where it stands, and what it goes through.
void World::note_iterator(PyObject* iterator) {
  Known* known = find(iterator);
  const IteratorKind& kind = *guard::iterator_kind(iterator);
  if (!known || std::exchange(known->noted, true)) return;
  PyRef state = PyRef::steal(guard::iterator_state(iterator, kind));
  if (!state) return PyErr_Clear(), distrust("an iterator does not tell where it stands");
  known->source->assume(Check::stands, state.get());
  if (kind.inside < 0) return;
  PyRef name = PyRef::steal(PyUnicode_InternFromString(kind.name));
  PyObject* inside = field(iterator, kind.inside, name.get());
  if (!inside) return;
  if (kind.goes == Goes::along_others) read_whole(inside);
  if (kind.goes == Goes::along_other || kind.goes == Goes::along_others)
    all_of_others(inside, [&](PyObject* each) { return note_iterator(each), true; });
}

/// What it gives next becomes known. False: it is over.
bool World::read_next(PyObject* iterator) {
  const IteratorKind& kind = *guard::iterator_kind(iterator);
  PyObject* inside = guard::iterator_inside(iterator, kind);
  switch (kind.goes) {
    case Goes::through_range: return PyObject_LengthHint(iterator, 0) > 0;
    case Goes::through_dict:
    case Goes::through_odict:
    case Goes::through_set:
    case Goes::through_deque:
      if (inside) own_numbers_of(inside), read_whole(inside);
      return guard::has_next(iterator, kind);
    case Goes::along_sequence: {
      if (!inside) return false;
      const Py_ssize_t index = guard::next_index(iterator, kind);
      const Known* known = find(inside);
      if (index < 0 || index >= Py_SIZE(inside)) return read_length(inside), false;
      const auto step = PyList_Check(inside) ? Access::list_item : Access::tuple_item;
      own_numbers_of(inside);
      if (known && !known->read_whole)
        reached(PySequence_Fast_GET_ITEM(inside, index), tree->child(known->source, step, nullptr, index));
      return true;
    }
    case Goes::along_other:
    case Goes::along_others:
      return inside && all_of_others(inside, [&](PyObject* each) { return read_next(each); });
  }
  return false;
}

void World::about_to_advance(PyObject* iterator) {
  if (is_counter(iterator)) return;
  note_iterator(iterator);
  read_next(iterator);
}

/// The number that the counter gave: the one it stood at, or one step more than the last.
PyObject* World::counted(Advanced& counter, PyObject* number) {
  using guard::NumberOp;
  static PyObject* const next = PyCFunction_New(&next_def, nullptr);
  static PyObject* const step = PyCFunction_New(&step_def, nullptr);
  const int source =
      numbers.add({NumberOp::source, tree->keep(find(counter.iterator.get())->source), {}, {}, {}});
  guard::NumberStep given{NumberOp::call, 0, PyRef::share(next), {}, {source}};
  if (counter.last >= 0) {
    const int more = numbers.add({NumberOp::call, 0, PyRef::share(step), {}, {source}});
    given = {NumberOp::binary, interp::Binary::add, {}, {}, {counter.last, more}};
  }
  PyObject* mine = computed(number, std::move(given));
  if (mine) counter.last = step_of(mine);
  return mine;
}

PyObject* World::has_advanced(PyObject* iterator, PyObject* item) {
  auto at = std::find_if(advanced.begin(), advanced.end(),
                         [&](const Advanced& each) { return each.iterator.get() == iterator; });
  if (at == advanced.end()) {
    at = advanced.insert(at, {PyRef::share(iterator)});
    goodbyes.also_held(iterator);
  }
  ++at->times;
  return item && is_counter(iterator) ? counted(*at, item) : item;
}

bool World::is_gone_through(PyObject* container) const {
  auto is_it = [&](PyObject* inside) { return inside == container; };
  return std::any_of(advanced.begin(), advanced.end(),
                     [&](const Advanced& each) { return goes_through(each.iterator.get(), is_it); });
}

}  // namespace bolt::observe

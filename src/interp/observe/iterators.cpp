// interp/observe/iterators.cpp
// World's reading of iterators that the region found in its frames and goes on with. What one gives next is
// read before CPython takes it out, so that it is known when it comes.

#include "guard/iterators.h"

#include <algorithm>
#include <utility>

#include "interp/observe/world.h"

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

}  // namespace

bool World::can_advance(PyObject* iterator) {
  constexpr int kDeepest = 8;
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
  note_iterator(iterator);
  read_next(iterator);
}

void World::has_advanced(PyObject* iterator) {
  auto at = std::find_if(advanced.begin(), advanced.end(),
                         [&](const Advanced& each) { return each.iterator.get() == iterator; });
  if (at == advanced.end()) {
    at = advanced.insert(at, {PyRef::share(iterator)});
    also_held(iterator);
  }
  ++at->times;
}

bool World::is_gone_through(PyObject* container) const {
  auto is_it = [&](PyObject* inside) { return inside == container; };
  return std::any_of(advanced.begin(), advanced.end(),
                     [&](const Advanced& each) { return goes_through(each.iterator.get(), is_it); });
}

}  // namespace bolt::observe

// guard/iterators.h
// CPython's own iterators -> what they go through, and where they stand: those over lists, tuples, ranges,
// dicts, sets and deques, forwards and backwards, and enumerate and zip over others.
//
// A run that goes on in the middle of a loop finds such an iterator in its frame. Where the loop is part of a
// region, where it stands is guarded (Check::stands), what it goes through is read like every other object,
// and a later call advances it as often as the run did.
//
// One through a container that can be written to behind its back (a dict, a set, a deque) is made again as
// one through the same container: what is written later it must give, or raise for. A container made again
// has no gaps where the first had some, so such a place is told by how many items lie before it.
#pragma once

#include <cstdint>
#include <vector>

#include "python/py_ref.h"

namespace bolt::guard {

struct IteratorKind {
  enum class Goes : uint8_t {
    along_sequence,  ///< a list or tuple
    through_range,
    through_dict,  ///< its keys, values or items
    through_odict,
    through_set,
    through_deque,
    along_other,   ///< enumerate: another iterator
    along_others,  ///< zip: those in a tuple
  };
  PyTypeObject* type;
  Goes goes;
  /// Where the object lies that it goes through, null once it is over; -1: there is none.
  Py_ssize_t inside;
  const char* name;           ///< of that field
  Py_ssize_t words[4];        ///< where the numbers lie that say where it stands; the rest is -1
  bool is_backwards = false;  ///< through a dict or deque
};

/// Null: an iterator of another kind.
const IteratorKind* iterator_kind(PyTypeObject* type);
inline const IteratorKind* iterator_kind(PyObject* iterator) { return iterator_kind(Py_TYPE(iterator)); }
/// What it goes through, borrowed; null: it is over, or goes through nothing.
PyObject* iterator_inside(PyObject* iterator, const IteratorKind& kind);
/// Where it stands, as a tuple of ints. New.
PyObject* iterator_state(PyObject* iterator, const IteratorKind& kind);
/// Through a dict, a set or a deque.
bool goes_through_container(const IteratorKind& kind);
/// Of an OrderedDict: does it give keys, values or items, and which way. Others say so by their type.
Py_ssize_t iterator_flavour(PyObject* iterator, const IteratorKind& kind);
/// One through `container` that stands before its first item; without a container one that is over. New.
PyObject* make_iterator(const IteratorKind& kind, Py_ssize_t flavour, PyObject* container);
/// Sets one made by make_iterator where `state` says, which iterator_state gave of another. False with an
/// exception.
bool set_iterator_state(PyObject* iterator, const IteratorKind& kind, PyObject* state);
/// CPython's count of the writes to an OrderedDict or a deque that iterators through it raise for: not of
/// those that only put another item in a place.
size_t noticed_writes(PyObject* container);
/// Of a deque: how many items it holds at most; -1: any number.
Py_ssize_t longest(PyObject* deque);
/// Of an item of a deque: the words that lead to it, and the one that it is in.
std::vector<const void* const*> deque_path(PyObject* deque, Py_ssize_t index);
/// Of one through a container: will it give another item, or raise?
bool has_next(PyObject* iterator, const IteratorKind& kind);
/// Of one along a sequence: the index of what it gives next.
Py_ssize_t next_index(PyObject* iterator, const IteratorKind& kind);
/// zip(strict=True), which looks further than it gives.
bool is_strict(PyObject* zip);

}  // namespace bolt::guard

// guard/iterators.h
// CPython's own iterators -> what they go through, and where they stand: those over lists, tuples, ranges and
// dicts, forwards and backwards, and enumerate and zip over others.
//
// A run that goes on in the middle of a loop finds such an iterator in its frame. Where the loop is part of a
// region, where it stands is guarded (Check::stands), what it goes through is read like every other object,
// and a later call advances it as often as the run did.
#pragma once

#include <cstdint>

#include "guard/py_ref.h"

namespace bolt::guard {

struct IteratorKind {
  enum class Goes : uint8_t {
    along_sequence,  ///< a list or tuple
    through_range,
    through_dict,  ///< its keys, values or items
    along_other,   ///< enumerate: another iterator
    along_others,  ///< zip: those in a tuple
  };
  PyTypeObject* type;
  Goes goes;
  /// Where the object lies that it goes through, null once it is over; -1: there is none.
  Py_ssize_t inside;
  const char* name;     ///< of that field
  Py_ssize_t words[4];  ///< where the numbers lie that say where it stands; the rest is -1
};

/// Null: an iterator of another kind.
const IteratorKind* iterator_kind(PyObject* iterator);
/// What it goes through, borrowed; null: it is over, or goes through nothing.
PyObject* iterator_inside(PyObject* iterator, const IteratorKind& kind);
/// Where it stands, as a tuple of ints. New.
PyObject* iterator_state(PyObject* iterator, const IteratorKind& kind);
/// Of one along a sequence: the index of what it gives next.
Py_ssize_t next_index(PyObject* iterator, const IteratorKind& kind);
/// zip(strict=True), which looks further than it gives.
bool is_strict(PyObject* zip);

}  // namespace bolt::guard

// guard/iterators.cpp: see iterators.h.
#include "guard/iterators.h"

#include <cstddef>

namespace bolt::guard {
namespace {

// CPython keeps these structs to itself. Those of lists and tuples begin alike, as do both kinds of
// reversed().
struct SequenceIterator {
  PyObject_HEAD Py_ssize_t index;
  PyObject* sequence;
};
#if PY_VERSION_HEX >= 0x030C0000
struct RangeIterator {
  PyObject_HEAD long start, step, left;
};
#else
struct RangeIterator {
  PyObject_HEAD long index, start, step, size;
};
#endif
struct DictIterator {
  PyObject_HEAD PyObject* dict;
  Py_ssize_t size, position;
  PyObject* result;
  Py_ssize_t left;
};
struct Enumerate {
  PyObject_HEAD Py_ssize_t index;
  PyObject* iterator;
};
struct Zip {
  PyObject_HEAD Py_ssize_t size;
  PyObject *iterators, *result;
  int strict;
};

using Goes = IteratorKind::Goes;

constexpr Py_ssize_t kNone = -1;

IteratorKind along(PyTypeObject* type) {
  return {type,
          Goes::along_sequence,
          offsetof(SequenceIterator, sequence),
          "sequence",
          {offsetof(SequenceIterator, index), kNone, kNone, kNone}};
}
IteratorKind through_dict(PyTypeObject* type) {
  return {type,
          Goes::through_dict,
          offsetof(DictIterator, dict),
          "dict",
          {offsetof(DictIterator, size), offsetof(DictIterator, left), kNone, kNone}};
}

const IteratorKind kKinds[] = {
    along(&PyListIter_Type),
    along(&PyTupleIter_Type),
    along(&PyListRevIter_Type),
    along(&PyReversed_Type),
    through_dict(&PyDictIterKey_Type),
    through_dict(&PyDictIterValue_Type),
    through_dict(&PyDictIterItem_Type),
#if PY_VERSION_HEX >= 0x030C0000
    {&PyRangeIter_Type,
     Goes::through_range,
     kNone,
     "",
     {offsetof(RangeIterator, start), offsetof(RangeIterator, step), offsetof(RangeIterator, left), kNone}},
#else
    {&PyRangeIter_Type,
     Goes::through_range,
     kNone,
     "",
     {offsetof(RangeIterator, index), offsetof(RangeIterator, start), offsetof(RangeIterator, step),
      offsetof(RangeIterator, size)}},
#endif
    {&PyEnum_Type,
     Goes::along_other,
     offsetof(Enumerate, iterator),
     "iterator",
     {offsetof(Enumerate, index), kNone, kNone, kNone}},
    {&PyZip_Type,
     Goes::along_others,
     offsetof(Zip, iterators),
     "iterators",
     {offsetof(Zip, size), kNone, kNone, kNone}},
};

template <class T>
T at(PyObject* object, Py_ssize_t offset) {
  return *reinterpret_cast<T*>(reinterpret_cast<char*>(object) + offset);
}

}  // namespace

const IteratorKind* iterator_kind(PyObject* iterator) {
  for (const IteratorKind& kind : kKinds)
    if (Py_IS_TYPE(iterator, kind.type)) return &kind;
  return nullptr;
}

PyObject* iterator_inside(PyObject* iterator, const IteratorKind& kind) {
  return kind.inside < 0 ? nullptr : at<PyObject*>(iterator, kind.inside);
}

PyObject* iterator_state(PyObject* iterator, const IteratorKind& kind) {
  static_assert(sizeof(long) == sizeof(Py_ssize_t));
  Py_ssize_t count = 0;
  while (count < 4 && kind.words[count] >= 0) ++count;
  PyRef state = PyRef::steal(PyTuple_New(count));
  for (Py_ssize_t i = 0; state && i < count; ++i) {
    PyObject* word = PyLong_FromSsize_t(at<Py_ssize_t>(iterator, kind.words[i]));
    if (!word) return nullptr;
    PyTuple_SET_ITEM(state.get(), i, word);
  }
  return state.release();
}

Py_ssize_t next_index(PyObject* iterator, const IteratorKind& kind) {
  return at<Py_ssize_t>(iterator, kind.words[0]);
}

bool is_strict(PyObject* zip) { return reinterpret_cast<Zip*>(zip)->strict != 0; }

}  // namespace bolt::guard

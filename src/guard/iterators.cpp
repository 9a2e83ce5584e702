// guard/iterators.cpp
#include "guard/iterators.h"

#include <algorithm>
#include <cstddef>
#include <vector>

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
struct SetIterator {
  PyObject_HEAD PyObject* set;
  Py_ssize_t size, position, left;
};
struct OrderedDict {
  PyDictObject dict;
  void *first, *last, *nodes;
  Py_ssize_t nodes_size;
  void* sentinel;
  size_t version;
};
struct OrderedDictIterator {
  PyObject_HEAD int flavour;
  OrderedDict* dict;
  Py_ssize_t size;
  size_t version;
  PyObject *result, *next;
};
struct DequeBlock {
  static constexpr Py_ssize_t kItems = 64;
  DequeBlock* left;
  PyObject* items[kItems];
  DequeBlock* right;
};
struct Deque {
  PyObject_VAR_HEAD DequeBlock *left_block, *right_block;
  Py_ssize_t left_index, right_index;
  size_t version;
  Py_ssize_t longest;
};
struct DequeIterator {
  PyObject_HEAD void* block;
  Py_ssize_t index;
  Deque* deque;
  size_t version;
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

constexpr Py_ssize_t kNoWord = -1;

IteratorKind along(PyTypeObject* type) {
  return {type,
          Goes::along_sequence,
          offsetof(SequenceIterator, sequence),
          "sequence",
          {offsetof(SequenceIterator, index), kNoWord, kNoWord, kNoWord}};
}
IteratorKind through_dict(PyTypeObject* type, bool backwards = false) {
  return {type,
          Goes::through_dict,
          offsetof(DictIterator, dict),
          "dict",
          {offsetof(DictIterator, size), offsetof(DictIterator, left), kNoWord, kNoWord},
          backwards};
}
IteratorKind through_deque(PyTypeObject* type, bool backwards) {
  return {type,
          Goes::through_deque,
          offsetof(DequeIterator, deque),
          "deque",
          {offsetof(DequeIterator, left), kNoWord, kNoWord, kNoWord},
          backwards};
}

const IteratorKind kKinds[] = {
    along(&PyListIter_Type),
    along(&PyTupleIter_Type),
    along(&PyListRevIter_Type),
    along(&PyReversed_Type),
    through_dict(&PyDictIterKey_Type),
    through_dict(&PyDictIterValue_Type),
    through_dict(&PyDictIterItem_Type),
    through_dict(&PyDictRevIterKey_Type, true),
    through_dict(&PyDictRevIterValue_Type, true),
    through_dict(&PyDictRevIterItem_Type, true),
    {&PyODictIter_Type,
     Goes::through_odict,
     offsetof(OrderedDictIterator, dict),
     "dict",
     {offsetof(OrderedDictIterator, size), kNoWord, kNoWord, kNoWord}},
    {&PySetIter_Type,
     Goes::through_set,
     offsetof(SetIterator, set),
     "set",
     {offsetof(SetIterator, size), offsetof(SetIterator, left), kNoWord, kNoWord}},
#if PY_VERSION_HEX >= 0x030C0000
    {&PyRangeIter_Type,
     Goes::through_range,
     kNoWord,
     "",
     {offsetof(RangeIterator, start), offsetof(RangeIterator, step), offsetof(RangeIterator, left), kNoWord}},
#else
    {&PyRangeIter_Type,
     Goes::through_range,
     kNoWord,
     "",
     {offsetof(RangeIterator, index), offsetof(RangeIterator, start), offsetof(RangeIterator, step),
      offsetof(RangeIterator, size)}},
#endif
    {&PyEnum_Type,
     Goes::along_other,
     offsetof(Enumerate, iterator),
     "iterator",
     {offsetof(Enumerate, index), kNoWord, kNoWord, kNoWord}},
    {&PyZip_Type,
     Goes::along_others,
     offsetof(Zip, iterators),
     "iterators",
     {offsetof(Zip, size), kNoWord, kNoWord, kNoWord}},
};

template <class T>
T& at(PyObject* object, Py_ssize_t offset) {
  return *reinterpret_cast<T*>(reinterpret_cast<char*>(object) + offset);
}

/// CPython exports these two types by name only.
std::vector<IteratorKind> deque_kinds() {
  std::vector<IteratorKind> kinds;
  for (const bool backwards : {false, true})
    if (PyTypeObject* type =
            native_type("_collections", backwards ? "_deque_reverse_iterator" : "_deque_iterator"))
      kinds.push_back(through_deque(type, backwards));
  return kinds;
}

Py_ssize_t count_words(const IteratorKind& kind) {
  return std::find(std::begin(kind.words), std::end(kind.words), kNoWord) - std::begin(kind.words);
}

Py_ssize_t passed_in_dict(const DictIterator& iterator, bool backwards) {
  Py_ssize_t passed = 0, position = 0;
  PyObject *key, *item;
  while (PyDict_Next(iterator.dict, &position, &key, &item))
    passed += backwards ? position - 1 > iterator.position : position <= iterator.position;
  return passed;
}

Py_ssize_t passed_in_set(const SetIterator& iterator) {
  Py_ssize_t passed = 0, position = 0;
  PyObject* item;
  Py_hash_t hash;
  while (_PySet_NextEntry(iterator.set, &position, &item, &hash)) passed += position <= iterator.position;
  return passed;
}

/// Its __reduce__ gives (iter, (what is left as a list,)).
Py_ssize_t passed_in_odict(PyObject* iterator) {
  PyRef reduced = PyRef::steal(PyObject_CallMethod(iterator, "__reduce__", nullptr));
  if (!reduced) return PyErr_Clear(), 0;
  PyObject* left = PyTuple_GET_ITEM(PyTuple_GET_ITEM(reduced.get(), 1), 0);
  auto* dict = reinterpret_cast<OrderedDictIterator*>(iterator)->dict;
  return PyDict_GET_SIZE(reinterpret_cast<PyObject*>(dict)) - PyList_GET_SIZE(left);
}

/// Has what it goes through been written to since it was made, in a way that it raises for? Those through
/// dicts and sets go by a size, which is one of their words.
bool is_stale(PyObject* iterator, const IteratorKind& kind) {
  if (kind.goes == Goes::through_odict) {
    const auto& odict = *reinterpret_cast<OrderedDictIterator*>(iterator);
    return odict.version != odict.dict->version;
  }
  const auto* deque = reinterpret_cast<DequeIterator*>(iterator);
  return kind.goes == Goes::through_deque && deque->version != deque->deque->version;
}

void make_stale(PyObject* iterator, const IteratorKind& kind) {
  if (kind.goes == Goes::through_odict)
    --reinterpret_cast<OrderedDictIterator*>(iterator)->version;
  else
    --reinterpret_cast<DequeIterator*>(iterator)->version;
}

/// How many items of the container lie before the place where it stands.
Py_ssize_t passed(PyObject* iterator, const IteratorKind& kind) {
  if (!iterator_inside(iterator, kind) || is_stale(iterator, kind)) return 0;
  switch (kind.goes) {
    case Goes::through_dict:
      return passed_in_dict(*reinterpret_cast<DictIterator*>(iterator), kind.is_backwards);
    case Goes::through_odict: return passed_in_odict(iterator);
    case Goes::through_set: return passed_in_set(*reinterpret_cast<SetIterator*>(iterator));
    case Goes::through_deque: {
      const auto& deque = *reinterpret_cast<DequeIterator*>(iterator);
      return Py_SIZE(deque.deque) - deque.left;
    }
    default: return 0;
  }
}

/// A new one through `container`, by C's own methods whatever its class has in Python.
PyObject* begin(const IteratorKind& kind, Py_ssize_t flavour, PyObject* container) {
  PyTypeObject *native = &PyDict_Type, *type = kind.type;
  const char* view = nullptr;
  bool backwards = kind.is_backwards;
  switch (kind.goes) {
    case Goes::through_set: return PySet_Type.tp_iter(container);
    case Goes::through_deque: return PyObject_CallOneArg(reinterpret_cast<PyObject*>(type), container);
    case Goes::through_odict:
      native = &PyODict_Type;
      backwards = flavour & 1;
      view = (flavour & 6) == 6 ? "items" : (flavour & 4) ? "values" : "keys";
      break;
    default:
      view = type == &PyDictIterItem_Type || type == &PyDictRevIterItem_Type     ? "items"
             : type == &PyDictIterValue_Type || type == &PyDictRevIterValue_Type ? "values"
                                                                                 : "keys";
  }
  PyRef all = PyRef::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(native), view, "O", container));
  if (!all) return nullptr;
  return backwards ? PyObject_CallMethod(all.get(), "__reversed__", nullptr) : PyObject_GetIter(all.get());
}

/// Takes `times` items out of it. False with an exception.
bool skip(PyObject* iterator, Py_ssize_t times) {
  for (; times > 0; --times) PyRef::steal(Py_TYPE(iterator)->tp_iternext(iterator));
  return !PyErr_Occurred();
}

}  // namespace

const IteratorKind* iterator_kind(PyTypeObject* type) {
  for (const IteratorKind& kind : kKinds)
    if (type == kind.type) return &kind;
  static const auto* const deques = new std::vector<IteratorKind>(deque_kinds());
  for (const IteratorKind& kind : *deques)
    if (type == kind.type) return &kind;
  return nullptr;
}

PyObject* iterator_inside(PyObject* iterator, const IteratorKind& kind) {
  return kind.inside < 0 ? nullptr : at<PyObject*>(iterator, kind.inside);
}

PyObject* iterator_state(PyObject* iterator, const IteratorKind& kind) {
  static_assert(sizeof(long) == sizeof(Py_ssize_t));
  std::vector<Py_ssize_t> words;
  for (Py_ssize_t i = 0; i < count_words(kind); ++i) words.push_back(at<Py_ssize_t>(iterator, kind.words[i]));
  if (goes_through_container(kind)) {
    words.push_back(passed(iterator, kind));
    words.push_back(iterator_inside(iterator, kind) && is_stale(iterator, kind));
  }
  PyRef state = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(words.size())));
  for (size_t i = 0; state && i < words.size(); ++i) {
    PyObject* word = PyLong_FromSsize_t(words[i]);
    if (!word) return nullptr;
    PyTuple_SET_ITEM(state.get(), static_cast<Py_ssize_t>(i), word);
  }
  return state.release();
}

bool goes_through_container(const IteratorKind& kind) {
  return kind.goes == Goes::through_dict || kind.goes == Goes::through_odict ||
         kind.goes == Goes::through_set || kind.goes == Goes::through_deque;
}

Py_ssize_t iterator_flavour(PyObject* iterator, const IteratorKind& kind) {
  return kind.goes == Goes::through_odict ? reinterpret_cast<OrderedDictIterator*>(iterator)->flavour : 0;
}

PyObject* make_iterator(const IteratorKind& kind, Py_ssize_t flavour, PyObject* container) {
  if (container) return begin(kind, flavour, container);
  PyObject* native = reinterpret_cast<PyObject*>(kind.goes == Goes::through_set     ? &PySet_Type
                                                 : kind.goes == Goes::through_odict ? &PyODict_Type
                                                                                    : &PyDict_Type);
  PyRef empty = PyRef::steal(PyObject_CallNoArgs(native));
  PyRef made = PyRef::steal(empty ? begin(kind, flavour, empty.get()) : nullptr);
  return made && skip(made.get(), 1) ? made.release() : nullptr;
}

// The iterator has been handed to others already, so it takes over what another one is that has got there.
bool set_iterator_state(PyObject* iterator, const IteratorKind& kind, PyObject* state) {
  PyObject* container = iterator_inside(iterator, kind);
  PyRef there = PyRef::steal(begin(kind, iterator_flavour(iterator, kind), container));
  const Py_ssize_t count = count_words(kind);
  auto word = [&](Py_ssize_t i) { return PyLong_AsSsize_t(PyTuple_GET_ITEM(state, i)); };
  if (!there || !skip(there.get(), word(count))) return false;
  char *mine = reinterpret_cast<char*>(iterator), *its = reinterpret_cast<char*>(there.get());
  std::swap_ranges(mine + sizeof(PyObject), mine + kind.type->tp_basicsize, its + sizeof(PyObject));
  for (Py_ssize_t i = 0; i < count; ++i) at<Py_ssize_t>(iterator, kind.words[i]) = word(i);
  if (word(count + 1)) make_stale(iterator, kind);
  return true;
}

size_t noticed_writes(PyObject* container) {
  return PyODict_Check(container) ? reinterpret_cast<OrderedDict*>(container)->version
                                  : reinterpret_cast<Deque*>(container)->version;
}

Py_ssize_t longest(PyObject* deque) { return reinterpret_cast<Deque*>(deque)->longest; }

std::vector<const void* const*> deque_path(PyObject* deque, Py_ssize_t index) {
  const auto& parts = *reinterpret_cast<Deque*>(deque);
  auto word = [](const auto& part) { return reinterpret_cast<const void* const*>(&part); };
  std::vector<const void* const*> path = {word(parts.left_block), word(parts.left_index)};
  DequeBlock* block = parts.left_block;
  for (index += parts.left_index; index >= DequeBlock::kItems; index -= DequeBlock::kItems) {
    path.push_back(word(block->right));
    block = block->right;
  }
  path.push_back(word(block->items[index]));
  return path;
}

bool has_next(PyObject* iterator, const IteratorKind& kind) {
  PyObject* inside = iterator_inside(iterator, kind);
  if (!inside) return false;
  // Asked in each turn, so not by how much is left, which __reduce__ counts.
  if (kind.goes == Goes::through_odict)
    return is_stale(iterator, kind) || reinterpret_cast<OrderedDictIterator*>(iterator)->next;
  return PyObject_LengthHint(iterator, 0) > 0;
}

Py_ssize_t next_index(PyObject* iterator, const IteratorKind& kind) {
  return at<Py_ssize_t>(iterator, kind.words[0]);
}

bool is_strict(PyObject* zip) { return reinterpret_cast<Zip*>(zip)->strict != 0; }

}  // namespace bolt::guard

// guard/leaf.cpp
#include "guard/leaf.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "guard/numpy_numbers.h"
#include "guard/tensors.h"
#include "support/pointer_map.h"

namespace bolt::guard {
namespace {

PyObject* enum_metaclass() {
  static PyObject* const metaclass = [] {
    PyRef module = PyRef::steal(import_module("enum"));
    PyObject* found = module ? PyObject_GetAttrString(module.get(), "EnumMeta") : nullptr;
    if (!found) PyErr_Clear();
    return found;
  }();
  return metaclass;
}

PyTypeObject* pattern_type() {
  static PyTypeObject* const type = native_type("re", "Pattern");
  return type;
}

PyTypeObject* union_type() {
  static PyTypeObject* const type = native_type("types", "UnionType");
  return type;
}

bool is_enum_member(PyObject* object) {
  PyTypeObject* metaclass = Py_TYPE(Py_TYPE(object));
  return metaclass != &PyType_Type && !Py_IS_TYPE(object, reinterpret_cast<PyTypeObject*>(tensor_class())) &&
         enum_metaclass() && PyType_IsSubtype(metaclass, reinterpret_cast<PyTypeObject*>(enum_metaclass()));
}

/// Tuples and frozensets may hold each other many times over: what has more of them than this is no leaf.
constexpr int kMostContainers = 256;

/// Nearly all that are asked about, and are leaves.
bool is_common_leaf(PyObject* object) {
  return object == Py_None || PyLong_CheckExact(object) || PyUnicode_CheckExact(object);
}

bool is_other_leaf(PyObject* object, int& containers);

bool is_leaf_within(PyObject* object, int& containers) {
  return is_common_leaf(object) || is_other_leaf(object, containers);
}

bool all_leaves(PyObject* tuple, int& containers) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    // Iterators of C keep tuples of their own with gaps: zip_longest, of what is used up.
    if (PyObject* item = PyTuple_GET_ITEM(tuple, i); !item || !is_leaf_within(item, containers)) return false;
  return true;
}

bool set_of_leaves(PyObject* set, int& containers) {
  Py_ssize_t position = 0;
  PyObject* item;
  Py_hash_t hash;
  while (_PySet_NextEntry(set, &position, &item, &hash))
    if (!is_leaf_within(item, containers)) return false;
  return true;
}

bool same_tuple(PyObject* a, PyObject* b) {
  if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
    if (!same_leaf(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  return true;
}

/// Sets that are equal may still differ in the order of their elements, which a loop over them shows.
bool same_set(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  Py_ssize_t at_a = 0, at_b = 0;
  PyObject *item_a, *item_b;
  Py_hash_t hash;
  while (_PySet_NextEntry(a, &at_a, &item_a, &hash) && _PySet_NextEntry(b, &at_b, &item_b, &hash))
    if (!same_leaf(item_a, item_b)) return false;
  return true;
}

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool equal(PyObject* a, PyObject* b) {
  int result = PyObject_RichCompareBool(a, b, Py_EQ);
  if (result < 0) PyErr_Clear();
  return result == 1;
}

/// What the class says of an object.
enum class Sort : uint8_t { leaf, none, tuple, slice, frozen_set };

Sort sort_by_class(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyTuple_Type) return Sort::tuple;
  if (type == &PySlice_Type) return Sort::slice;
  if (type == &PyFrozenSet_Type) return Sort::frozen_set;
  for (PyTypeObject* leaf : {Py_TYPE(Py_None), &PyBool_Type, &PyLong_Type, &PyUnicode_Type, &PyFloat_Type,
                             &PyBytes_Type, &PyComplex_Type, &PyEllipsis_Type, &PyRange_Type,
                             &PyBaseObject_Type, &PyCode_Type, Py_TYPE(Py_NotImplemented)})
    if (type == leaf) return Sort::leaf;
  return is_torch_leaf(object) || type == union_type() || is_numpys(type) ? Sort::leaf : Sort::none;
}

/// Asked at every instruction of a recording, so worked out once: classes of C that are no heap types stay.
Sort sort_of(PyObject* object) {
  struct Seen {
    PyTypeObject* type;
    Sort sort;
  };
  static Seen all[128];
  PyTypeObject* type = Py_TYPE(object);
  Seen& seen = all[hash_address(type) % std::size(all)];
  if (seen.type != type) seen = {type, sort_by_class(object)};
  return seen.sort;
}

bool is_other_leaf(PyObject* object, int& containers) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) return is_enum_member(object) || type == pattern_type();
  switch (sort_of(object)) {
    case Sort::leaf: return true;
    case Sort::none: return false;
    case Sort::tuple: return --containers > 0 && all_leaves(object, containers);
    case Sort::frozen_set: return --containers > 0 && set_of_leaves(object, containers);
    case Sort::slice: break;
  }
  auto* slice = reinterpret_cast<PySliceObject*>(object);
  return is_leaf_within(slice->start, containers) && is_leaf_within(slice->stop, containers) &&
         is_leaf_within(slice->step, containers);
}

}  // namespace

bool is_leaf(PyObject* object) {
  if (is_common_leaf(object)) return true;
  int containers = kMostContainers;
  return is_other_leaf(object, containers);
}

bool same_leaf(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyComplex_Type) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
  }
  if (PyTuple_Check(a)) return same_tuple(a, b);
  if (type == &PyFrozenSet_Type) return same_set(a, b);
  if (type == &PySlice_Type) {
    auto *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
    return same_leaf(x->start, y->start) && same_leaf(x->stop, y->stop) && same_leaf(x->step, y->step);
  }
  if (type == &PyBool_Type || type == &PyBaseObject_Type || type == &PyCode_Type || is_enum_member(a))
    return false;
  if (is_numpys(type)) {
    const double x = PyFloat_AsDouble(a), y = PyFloat_AsDouble(b);
    if (PyErr_Occurred()) return PyErr_Clear(), false;
    if (!same_bits(x, y)) return false;
    if (x != x) return true;
  }
  return equal(a, b);
}

PyRef plain_value(PyObject* object) {
  if (!(Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE)) return {};
  if (PyLong_Check(object)) return PyRef::steal(PyLong_Type.tp_as_number->nb_int(object));
  if (PyFloat_Check(object)) return PyRef::steal(PyFloat_FromDouble(PyFloat_AS_DOUBLE(object)));
  if (PyUnicode_Check(object)) return PyRef::steal(PyUnicode_FromObject(object));
  if (PyBytes_Check(object))
    return PyRef::steal(PyBytes_FromStringAndSize(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object)));
  if (PyComplex_Check(object))
    return PyRef::steal(PyComplex_FromCComplex(reinterpret_cast<PyComplexObject*>(object)->cval));
  return {};
}

bool has_parts(PyObject* leaf) {
  return PyTuple_CheckExact(leaf) || PySlice_Check(leaf) || is_torch_size(leaf);
}

bool differ_in_numbers(PyObject* a, PyObject* b, const std::string& place, std::set<std::string>& found) {
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyLong_CheckExact(a) || PyFloat_CheckExact(a) || PyUnicode_CheckExact(a) || is_numpy_number(a)) {
    if (!same_leaf(a, b)) found.insert(place);
    return true;
  }
  if (!has_parts(a)) return same_leaf(a, b);
  if (PySlice_Check(a)) {
    auto *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
    return differ_in_numbers(x->start, y->start, place + ".start", found) &&
           differ_in_numbers(x->stop, y->stop, place + ".stop", found) &&
           differ_in_numbers(x->step, y->step, place + ".step", found);
  }
  if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
    if (!differ_in_numbers(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i),
                           place + "[" + std::to_string(i) + "]", found))
      return false;
  return true;
}

bool is_telling(PyObject* object) {
  if (is_leaf(object) || PyType_Check(object)) return true;
  if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i)
    if (!is_telling(PySequence_Fast_GET_ITEM(object, i))) return false;
  return true;
}

bool tells_the_same(PyObject* a, PyObject* b) {
  if (PyType_Check(a)) return a == b;
  if (is_leaf(a)) return same_leaf(a, b);
  if (!PyTuple_CheckExact(a) && !PyList_CheckExact(a)) return a == b;
  if (Py_TYPE(a) != Py_TYPE(b) || Py_SIZE(a) != Py_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(a); ++i)
    if (!tells_the_same(PySequence_Fast_GET_ITEM(a, i), PySequence_Fast_GET_ITEM(b, i))) return false;
  return true;
}

std::string short_repr(PyObject* object) {
  if (!object) return "<missing>";
  // Running a user's __repr__ or printing a tensor has effects of its own.
  if (is_tensor(object) || !(is_leaf(object) || PyType_Check(object) || PyCFunction_Check(object)))
    return std::string("<") + Py_TYPE(object)->tp_name + ">";
  if (PyType_Check(object)) return reinterpret_cast<PyTypeObject*>(object)->tp_name;
  PyRef text = PyRef::steal(PyObject_Repr(object));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!utf8) {
    PyErr_Clear();
    return std::string("<") + Py_TYPE(object)->tp_name + ">";
  }
  std::string result = utf8;
  return result.size() <= 80 ? result : result.substr(0, 77) + "...";
}

}  // namespace bolt::guard

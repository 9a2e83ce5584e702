// interp/containers.cpp
// Semantics of iteration, building, unpacking, text and new functions.

#include "interp/errors.h"
#include "interp/generator.h"
#include "interp/special.h"
#include "python/py_ref.h"

namespace bolt::interp {

// -- Iteration
// --------------------------------------------------------------------------------------------------------

PyObject* Semantics::get_iter(Frame& frame, PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_iter != python_slots.iter) return PyObject_GetIter(object);
  PyObject* method = _PyType_Lookup(type, names_of.iter_);
  if (!method || method == Py_None) return PyObject_GetIter(object);
  PyObject* iterator = call_special(*this, frame, object, names_of.iter_, {});
  if (iterator && !PyIter_Check(iterator)) {
    type_error("iter() returned non-iterator of type '%.100s'", iterator);
    Py_CLEAR(iterator);
  }
  return iterator;
}

PyObject* Semantics::advance(Frame& frame, PyObject* iterator) {
  PyTypeObject* type = Py_TYPE(iterator);
  if (type == &PyGen_Type && can_resume(iterator)) {
    PyObject* got = nullptr;
    const PySendResult status = resume_generator(iterator, Py_None, *this, &got);
    if (status != PYGEN_RETURN) return got;
    Py_DECREF(got);
    return nullptr;
  }
  if (type->tp_iternext == python_slots.next)
    return call_required(*this, frame, iterator, names_of.next_, {});
  return type->tp_iternext(iterator);
}

PyObject* Semantics::iter_next(Frame& frame, PyObject* iterator) {
  PyObject* value = advance(frame, iterator);
  if (!value && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_StopIteration)) PyErr_Clear();
  return value;
}

namespace {

PyObject* not_iterable(PyObject* object) {
  if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(object)->tp_iter && !PySequence_Check(object)) {
    PyErr_Clear();
    type_error("cannot unpack non-iterable %.200s object", object);
  }
  return nullptr;
}

/// Takes `n` values from an iterator into out; on failure releases them. `at_least`: a starred target
/// follows.
int take(Semantics& s, Frame& frame, PyObject* iterator, int n, int expected, bool at_least, PyObject** out) {
  for (int i = 0; i < n; ++i) {
    out[i] = s.iter_next(frame, iterator);
    if (out[i]) continue;
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %s%d, got %d)",
                   at_least ? "at least " : "", expected, i);
    }
    while (i > 0) Py_DECREF(out[--i]);
    return -1;
  }
  return 0;
}

void release_all(PyObject** values, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < n; ++i) Py_DECREF(values[i]);
}

}  // namespace

int Semantics::unpack_sequence(Frame& frame, PyObject* sequence, int n, PyObject** out) {
  if ((PyTuple_CheckExact(sequence) || PyList_CheckExact(sequence)) &&
      PySequence_Fast_GET_SIZE(sequence) == n) {
    PyObject** items = PySequence_Fast_ITEMS(sequence);
    for (int i = 0; i < n; ++i) out[i] = Py_NewRef(items[i]);
    return 0;
  }
  PyObject* iterator = get_iter(frame, sequence);
  if (!iterator) return not_iterable(sequence), -1;
  int status = take(*this, frame, iterator, n, n, false, out);
  if (status == 0) {
    PyObject* extra = iter_next(frame, iterator);
    if (extra || PyErr_Occurred()) {
      if (extra) PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %d)", n);
      Py_XDECREF(extra);
      release_all(out, n);
      status = -1;
    }
  }
  Py_DECREF(iterator);
  return status;
}

int Semantics::unpack_ex(Frame& frame, PyObject* sequence, int before, int after, PyObject** out) {
  PyObject* iterator = get_iter(frame, sequence);
  if (!iterator) return not_iterable(sequence), -1;
  int status = take(*this, frame, iterator, before, before + after, true, out);
  PyObject* rest = status == 0 ? PyList_New(0) : nullptr;
  if (rest && list_extend(frame, rest, iterator) < 0) Py_CLEAR(rest);
  Py_DECREF(iterator);
  if (!rest) {
    if (status == 0) release_all(out, before);
    return -1;
  }
  const Py_ssize_t size = PyList_GET_SIZE(rest);
  if (size < after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected at least %d, got %zd)",
                 before + after, before + size);
    Py_DECREF(rest);
    release_all(out, before);
    return -1;
  }
  out[before] = rest;
  for (int i = 0; i < after; ++i) out[before + 1 + i] = Py_NewRef(PyList_GET_ITEM(rest, size - after + i));
  return PyList_SetSlice(rest, size - after, size, nullptr);
}

// -- Building
// ---------------------------------------------------------------------------------------------------------

namespace {

PyObject* build_tuple(PyObject* const* items, Py_ssize_t n) {
  PyObject* tuple = PyTuple_New(n);
  for (Py_ssize_t i = 0; tuple && i < n; ++i) PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
  return tuple;
}

PyObject* build_list(PyObject* const* items, Py_ssize_t n) {
  PyObject* list = PyList_New(n);
  for (Py_ssize_t i = 0; list && i < n; ++i) PyList_SET_ITEM(list, i, Py_NewRef(items[i]));
  return list;
}

PyObject* build_set(PyObject* const* items, Py_ssize_t n) {
  PyObject* set = PySet_New(nullptr);
  for (Py_ssize_t i = 0; set && i < n; ++i) {
    if (PySet_Add(set, items[i]) < 0) Py_CLEAR(set);
  }
  return set;
}

/// items: key, value, key, value ...
PyObject* build_map(PyObject* const* items, Py_ssize_t n) {
  PyObject* dict = PyDict_New();
  for (Py_ssize_t i = 0; dict && i < n; i += 2) {
    if (PyDict_SetItem(dict, items[i], items[i + 1]) < 0) Py_CLEAR(dict);
  }
  return dict;
}

/// items: the values, then the tuple of keys
PyObject* build_const_key_map(PyObject* const* items, Py_ssize_t n) {
  PyObject* keys = items[n - 1];
  PyObject* dict = PyDict_New();
  for (Py_ssize_t i = 0; dict && i < n - 1; ++i) {
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(keys, i), items[i]) < 0) Py_CLEAR(dict);
  }
  return dict;
}

PyObject* build_string(PyObject* const* items, Py_ssize_t n) {
  static PyObject* const empty = PyUnicode_FromString("");
  return _PyUnicode_JoinArray(empty, items, n);
}

}  // namespace

PyObject* Semantics::build(Frame&, Build kind, PyObject* const* items, Py_ssize_t n) {
  switch (kind) {
    case Build::tuple: return build_tuple(items, n);
    case Build::list: return build_list(items, n);
    case Build::set: return build_set(items, n);
    case Build::map: return build_map(items, n);
    case Build::const_key_map: return build_const_key_map(items, n);
    case Build::string: return build_string(items, n);
    default: return PySlice_New(items[0], items[1], n == 3 ? items[2] : nullptr);
  }
}

int Semantics::list_append(Frame&, PyObject* list, PyObject* value) { return PyList_Append(list, value); }
int Semantics::set_add(Frame&, PyObject* set, PyObject* value) { return PySet_Add(set, value); }
int Semantics::map_add(Frame&, PyObject* map, PyObject* key, PyObject* value) {
  return PyDict_SetItem(map, key, value);
}

namespace {

/// True if going through `iterable` would enter Python code (or a generator): then we iterate ourselves.
bool iterates_in_python(PyObject* iterable) {
  PyTypeObject* type = Py_TYPE(iterable);
  return PyGen_Check(iterable) || type->tp_iter == python_slots.iter ||
         type->tp_iternext == python_slots.next;
}

template <class Add>
int for_each(Semantics& s, Frame& frame, PyObject* iterable, Add add) {
  PyObject* iterator = s.get_iter(frame, iterable);
  if (!iterator) return -1;
  int status = 0;
  while (status == 0) {
    PyObject* value = s.iter_next(frame, iterator);
    if (!value) break;
    status = add(value);
    Py_DECREF(value);
  }
  Py_DECREF(iterator);
  return PyErr_Occurred() ? -1 : status;
}

}  // namespace

int Semantics::list_extend(Frame& frame, PyObject* list, PyObject* iterable) {
  if (iterates_in_python(iterable)) {
    return for_each(*this, frame, iterable, [&](PyObject* value) { return PyList_Append(list, value); });
  }
  PyObject* none = _PyList_Extend(reinterpret_cast<PyListObject*>(list), iterable);
  if (none) {
    Py_DECREF(none);
    return 0;
  }
  if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(iterable)->tp_iter && !PySequence_Check(iterable)) {
    PyErr_Clear();
    type_error("Value after * must be an iterable, not %.200s", iterable);
  }
  return -1;
}

int Semantics::set_update(Frame& frame, PyObject* set, PyObject* iterable) {
  if (iterates_in_python(iterable)) {
    return for_each(*this, frame, iterable, [&](PyObject* value) { return PySet_Add(set, value); });
  }
  return _PySet_Update(set, iterable);
}

bool maps_in_python(PyObject* mapping) {
  PyTypeObject* type = Py_TYPE(mapping);
  if (PyDict_Check(mapping) && type->tp_iter == PyDict_Type.tp_iter)
    return false;  // as its entries lie there
  return type->tp_as_mapping && type->tp_as_mapping->mp_subscript == python_slots.get_item;
}

namespace {

/// What PyDict_Update and _PyDict_MergeEx do with a mapping: all keys first, then an item for each.
int add_entries(Semantics& s, Frame& frame, PyObject* dict, PyObject* mapping, bool once) {
  static PyObject* const name = PyUnicode_InternFromString("keys");
  PyRef method = PyRef::steal(s.get_attr(frame, mapping, name));
  PyRef found = PyRef::steal(method ? s.call(frame, method.get(), nullptr, 0, nullptr) : nullptr);
  PyRef keys = PyRef::steal(found ? PyList_New(0) : nullptr);
  if (!keys || s.list_extend(frame, keys.get(), found.get()) < 0) return -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    const int known = once ? PyDict_Contains(dict, key) : 0;
    if (known > 0) PyErr_SetObject(PyExc_KeyError, PyRef::steal(PyTuple_Pack(1, key)).get());
    if (known != 0) return -1;
    PyRef value = PyRef::steal(s.get_item(frame, mapping, key));
    if (!value || s.map_add(frame, dict, key, value.get()) < 0) return -1;
  }
  return 0;
}

}  // namespace

int Semantics::dict_update(Frame& frame, PyObject* dict, PyObject* mapping) {
  const bool ours = maps_in_python(mapping);
  if ((ours ? add_entries(*this, frame, dict, mapping, false) : PyDict_Update(dict, mapping)) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    type_error("'%.200s' object is not a mapping", mapping);
  }
  return -1;
}

int Semantics::dict_merge(Frame& frame, PyObject* dict, PyObject* mapping, PyObject* callable) {
  const bool ours = maps_in_python(mapping);
  if ((ours ? add_entries(*this, frame, dict, mapping, true) : _PyDict_MergeEx(dict, mapping, 2)) == 0)
    return 0;
  star_kwargs_error(callable, mapping);
  return -1;
}

PyObject* Semantics::list_to_tuple(Frame&, PyObject* list) { return PyList_AsTuple(list); }

PyObject* Semantics::star_args(Frame& frame, PyObject* callable, PyObject* iterable) {
  if (PyTuple_CheckExact(iterable)) return Py_NewRef(iterable);
  if (!Py_TYPE(iterable)->tp_iter && !PySequence_Check(iterable)) {
    star_args_error(callable, iterable);
    return nullptr;
  }
  if (!iterates_in_python(iterable)) return PySequence_Tuple(iterable);
  PyObject* list = PyList_New(0);
  if (!list) return nullptr;
  PyObject* tuple = list_extend(frame, list, iterable) < 0 ? nullptr : PyList_AsTuple(list);
  Py_DECREF(list);
  return tuple;
}

PyObject* Semantics::star_kwargs(Frame& frame, PyObject* callable, PyObject* mapping) {
  if (PyDict_CheckExact(mapping)) return Py_NewRef(mapping);
  PyObject* dict = PyDict_New();
  if (dict && dict_merge(frame, dict, mapping, callable) < 0) Py_CLEAR(dict);
  return dict;
}

// -- Text
// -------------------------------------------------------------------------------------------------------------

namespace {

/// str(value) or repr(value), the method run by us when it is a Python function.
PyObject* text_of(Semantics& s, Frame& frame, PyObject* value, bool as_repr) {
  PyTypeObject* type = Py_TYPE(value);
  const bool python = as_repr ? type->tp_repr == python_slots.repr : type->tp_str == python_slots.str;
  if (!python) {
    // object.__str__ is repr().
    if (!as_repr && type->tp_str == PyBaseObject_Type.tp_str) return text_of(s, frame, value, true);
    return as_repr ? PyObject_Repr(value) : PyObject_Str(value);
  }
  PyObject* text = call_special(s, frame, value, as_repr ? names_of.repr_ : names_of.str_, {});
  if (!text && !PyErr_Occurred()) return as_repr ? PyObject_Repr(value) : PyObject_Str(value);
  if (text && !PyUnicode_Check(text)) {
    type_error(
        as_repr ? "__repr__ returned non-string (type %.200s)" : "__str__ returned non-string (type %.200s)",
        text);
    Py_CLEAR(text);
  }
  return text;
}

PyObject* format_object(Semantics& s, Frame& frame, PyObject* value, PyObject* spec) {
  if (PyUnicode_CheckExact(value) && (!spec || PyUnicode_GET_LENGTH(spec) == 0)) return Py_NewRef(value);
  if (!is_heap_type(Py_TYPE(value))) return PyObject_Format(value, spec);
  PyObject* method = _PyType_Lookup(Py_TYPE(value), names_of.format_);
  const bool empty = !spec || (PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0);
  static PyObject* const object_format = _PyType_Lookup(&PyBaseObject_Type, names_of.format_);
  if (method == object_format && empty) return text_of(s, frame, value, false);
  if (!method || !PyFunction_Check(method)) return PyObject_Format(value, spec);
  PyObject* no_spec = spec ? nullptr : PyUnicode_FromString("");
  PyObject* text = call_required(s, frame, value, names_of.format_, {spec ? spec : no_spec});
  Py_XDECREF(no_spec);
  if (text && !PyUnicode_Check(text)) {
    type_error("__format__ must return a str, not %.200s", text);
    Py_CLEAR(text);
  }
  return text;
}

}  // namespace

PyObject* Semantics::format_value(Frame& frame, PyObject* value, int conversion, PyObject* spec) {
  if (conversion == 0) return format_object(*this, frame, value, spec);
  PyObject* text = conversion == 1   ? text_of(*this, frame, value, false)
                   : conversion == 2 ? text_of(*this, frame, value, true)
                                     : PyObject_ASCII(value);
  if (!text) return nullptr;
  PyObject* formatted = format_object(*this, frame, text, spec);
  Py_DECREF(text);
  return formatted;
}

// -- Functions
// --------------------------------------------------------------------------------------------------------

PyObject* Semantics::make_function(Frame& frame, PyObject* code, int flags, PyObject* const* extras) {
  auto* function = reinterpret_cast<PyFunctionObject*>(PyFunction_New(code, frame.globals()));
  if (!function) return nullptr;
  // Set as CPython's loop does, straight into the new object: the setters would look for changes to warn
  // about.
  if (flags & 1) function->func_defaults = Py_NewRef(*extras++);
  if (flags & 2) function->func_kwdefaults = Py_NewRef(*extras++);
  if (flags & 4) function->func_annotations = Py_NewRef(*extras++);
  if (flags & 8) function->func_closure = Py_NewRef(*extras++);
  return reinterpret_cast<PyObject*>(function);
}

}  // namespace bolt::interp

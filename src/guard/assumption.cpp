// guard/assumption.cpp
#include "guard/assumption.h"

#include "guard/iterators.h"
#include "guard/leaf.h"
#include "python/compat.h"

namespace bolt::guard {
namespace {

bool keys_match(PyObject* container, PyObject* expected) {
  Py_ssize_t n = PyTuple_GET_SIZE(expected), at = 0;
  auto same = [&](PyObject* key) {
    PyObject* wanted = at < n ? PyTuple_GET_ITEM(expected, at++) : nullptr;
    return wanted && (key == wanted || same_leaf(key, wanted));
  };
  if (is_set(container)) {
    if (PySet_GET_SIZE(container) != n) return false;
    Py_ssize_t position = 0;
    PyObject* item;
    Py_hash_t hash;
    while (_PySet_NextEntry(container, &position, &item, &hash))
      if (!same(item)) return false;
    return true;
  }
  if (PyDict_GET_SIZE(container) != n) return false;
  if (PyODict_Check(container)) {  // its order is not the order of the dict below
    PyRef keys = native_list(container, &PyODict_Type);
    if (!keys) return PyErr_Clear(), false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i)
      if (!same(PyList_GET_ITEM(keys.get(), i))) return false;
    return true;
  }
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(container, &position, &key, &value))
    if (!same(key)) return false;
  return true;
}

bool is_missing(PyObject* container, PyObject* key) {
  if (PyType_Check(container)) return !_PyType_Lookup(reinterpret_cast<PyTypeObject*>(container), key);
  int found = PyDict_Check(container) ? PyDict_Contains(container, key) : -1;
  if (found < 0) PyErr_Clear();
  return found == 0;
}

Py_ssize_t length_of(PyObject* object) {
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyList_Check(object) || PyTuple_Check(object)) return Py_SIZE(object);
  if (is_set(object)) return PySet_GET_SIZE(object);
  return Py_SIZE(object);  // a deque
}

bool same_builtin(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b) || !PyCFunction_Check(a)) return false;
  auto *x = reinterpret_cast<PyCFunctionObject*>(a), *y = reinterpret_cast<PyCFunctionObject*>(b);
  return x->m_ml == y->m_ml && x->m_self == y->m_self;
}

Py_ssize_t method_number(PyObject* builtin) {
  return reinterpret_cast<Py_ssize_t>(reinterpret_cast<PyCFunctionObject*>(builtin)->m_ml);
}

bool has_value(PyObject* object, PyObject* expected) {
  PyRef value = plain_value(object);
  if (!value) PyErr_Clear();
  return value && same_leaf(value.get(), expected);
}

/// `expected`: how it was asked, and what it gave.
bool gives_again(PyObject* object, PyObject* expected) {
  PyRef now = PyRef::steal(ask(object, PyTuple_GET_ITEM(expected, 0)));
  if (!now) forget_error();
  return now && tells_the_same(PyTuple_GET_ITEM(expected, 1), now.get());
}

PyRef state_of(PyObject* iterator) {
  const IteratorKind* kind = iterator_kind(iterator);
  PyRef state = PyRef::steal(kind ? iterator_state(iterator, *kind) : nullptr);
  if (!state) PyErr_Clear();
  return state;
}

bool stands_at(PyObject* iterator, PyObject* expected) {
  const PyRef state = state_of(iterator);
  return state && same_leaf(state.get(), expected);
}

std::string question_text(PyObject* how) {
  if (PyTuple_Check(how)) {
    const std::string args = short_repr(how);
    return PyTuple_GET_SIZE(how) == 1 ? args.substr(0, args.size() - 2) + ")" : args;
  }
  return std::string(".") + PyUnicode_AsUTF8(PyDescr_NAME(how));
}

}  // namespace

PyObject* ask(PyObject* object, PyObject* how) {
  if (PyTuple_Check(how)) return PyObject_Call(object, how, nullptr);
  return Py_TYPE(how)->tp_descr_get(how, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
}

bool holds(const Assumption& assumption, PyObject* object) {
  switch (assumption.check) {
    case Check::type_is: return reinterpret_cast<PyObject*>(Py_TYPE(object)) == assumption.value.get();
    case Check::is: return object == assumption.value.get();
    case Check::is_bound: return same_builtin(object, assumption.value.get());
    case Check::method: return PyCFunction_Check(object) && method_number(object) == assumption.number;
    case Check::equals: return same_leaf(object, assumption.value.get());
    case Check::value: return has_value(object, assumption.value.get());
    case Check::length: return length_of(object) == assumption.number;
    case Check::keys: return keys_match(object, assumption.value.get());
    case Check::missing: return is_missing(object, assumption.value.get());
    case Check::unbound: return false;
    case Check::tensor: return is_tensor(object);
    case Check::leaf: return is_tensor(object) && is_autograd_leaf(object) == (assumption.number != 0);
    case Check::gives: return gives_again(object, assumption.value.get());
    case Check::stands: return stands_at(object, assumption.value.get());
    case Check::same_as:
    case Check::not_same_as: return true;
  }
  return false;
}

std::string guard_text(const Source& source, const Assumption& assumption,
                       const std::vector<std::string>& names, const TensorTable& tensors) {
  std::string path = source.str(names), value = assumption.value ? short_repr(assumption.value.get()) : "";
  switch (assumption.check) {
    case Check::type_is: return "type(" + path + ") is " + value;
    case Check::is:
    case Check::is_bound: return path + " is " + value;
    case Check::method:
      return path + " is a method " + reinterpret_cast<PyMethodDef*>(assumption.number)->ml_name;
    case Check::equals:
    case Check::value: return path + " == " + value;
    case Check::length: return source.length_str(names) + " == " + std::to_string(assumption.number);
    case Check::keys: return "keys of " + path + " are " + value;
    case Check::missing: return value + " not in " + path;
    case Check::unbound: return path + " is unbound";
    case Check::tensor: return path + " is " + tensors.describe(static_cast<int>(assumption.number));
    case Check::leaf: return path + ".is_leaf is " + (assumption.number ? "True" : "False");
    case Check::gives:
      return path + question_text(PyTuple_GET_ITEM(assumption.value.get(), 0)) +
             " == " + short_repr(PyTuple_GET_ITEM(assumption.value.get(), 1));
    case Check::stands: return path + " stands at " + value;
    case Check::same_as: return path + " is " + assumption.other->str(names);
    case Check::not_same_as: return path + " is not " + assumption.other->str(names);
  }
  return path;
}

std::string now(const Assumption& assumption, PyObject* object) {
  if (!object) return " (now missing)";
  switch (assumption.check) {
    case Check::gives: {
      PyRef given = PyRef::steal(ask(object, PyTuple_GET_ITEM(assumption.value.get(), 0)));
      if (!given) forget_error();
      return given ? " (now " + short_repr(given.get()) + ")" : " (now it raises)";
    }
    case Check::length: return " (now " + std::to_string(length_of(object)) + ")";
    case Check::type_is: return std::string(" (now ") + Py_TYPE(object)->tp_name + ")";
    case Check::stands: {
      const PyRef state = state_of(object);
      return state ? " (now at " + short_repr(state.get()) + ")" : " (no longer)";
    }
    case Check::missing:
    case Check::leaf:
    case Check::keys: return " (no longer)";
    default: return " (now " + short_repr(object) + ")";
  }
}

}  // namespace bolt::guard

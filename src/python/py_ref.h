// python/py_ref.h
// PyRef: an owned reference to a Python object. Everything here needs the GIL, destruction included.
#pragma once

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <utility>

namespace bolt {

class PyRef {
 public:
  PyRef() = default;
  static PyRef steal(PyObject* object) { return PyRef(object); }
  static PyRef share(PyObject* object) { return PyRef(Py_XNewRef(object)); }
  PyRef(const PyRef& other) : object_(Py_XNewRef(other.object_)) {}
  PyRef(PyRef&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  PyRef& operator=(PyRef other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~PyRef() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit PyRef(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

/// PyObject_TypeCheck, for classes that most objects have nothing to do with: an instance of one derived from
/// it is at least as large as one of its own, which spares most the search through their bases.
inline bool is_instance_of(PyObject* object, PyTypeObject* type) {
  PyTypeObject* own = Py_TYPE(object);
  return own == type || (own->tp_basicsize >= type->tp_basicsize && PyType_IsSubtype(own, type));
}

inline bool is_module(PyObject* object) { return is_instance_of(object, &PyModule_Type); }
/// Null, without an exception, where it has none (`ModuleType.__new__(ModuleType)`).
inline const char* module_name(PyObject* module) {
  const char* name = PyModule_GetName(module);
  if (!name) PyErr_Clear();
  return name;
}
/// The elements, or keys, as the type `native` of C has them: a Python class may have an __iter__ of its own.
inline PyRef native_list(PyObject* object, PyTypeObject* native) {
  PyRef iterator = PyRef::steal(native->tp_iter(object));
  return PyRef::steal(iterator ? PySequence_List(iterator.get()) : nullptr);
}

inline bool is_set(PyObject* object) {
  return is_instance_of(object, &PySet_Type) || is_instance_of(object, &PyFrozenSet_Type);
}

/// New; null with an exception. PyImport_ImportModule would call the `__import__` that the Python code in
/// progress knows, and not all does (a namedtuple's `__new__`).
inline PyObject* import_module(const char* name) {
  PyRef whole = PyRef::steal(Py_BuildValue("[s]", "__name__"));  // the last part of a dotted name
  return whole ? PyImport_ImportModuleLevel(name, nullptr, nullptr, whole.get(), 0) : nullptr;
}

/// A class of C, which stays; null: there is none of that name.
PyTypeObject* native_type(const char* module_name, const char* name);

}  // namespace bolt

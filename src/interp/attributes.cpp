// interp/attributes.cpp
// Semantics of attributes.
//
// Most reads end in CPython's generic lookup. Three cases enter Python code and are done here so that we run
// it: a class with `__getattr__` or `__getattribute__` (torch.nn.Module is one), a property, and a descriptor
// whose `__get__` is written in Python. The same three for writes.

#include "interp/call.h"
#include "interp/errors.h"
#include "interp/special.h"

namespace bolt::interp {

namespace {

/// The value of `name` in the object's own dict, borrowed; null when there is none.
PyObject* own_attribute(PyObject* object, PyObject* name) {
  PyObject** dict = _PyObject_GetDictPtr(object);
  return dict && *dict ? PyDict_GetItemWithError(*dict, name) : nullptr;
}

/// PyObject_GenericGetAttr, with Python-level getters run by us.
CallStart generic_get(Semantics& s, Frame& frame, PyObject* object, PyObject* name) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (!descriptor || !getter_is_python(descriptor)) return {PyObject_GenericGetAttr(object, name), nullptr};
  Py_INCREF(descriptor);  // a key's `__eq__` may take it off the class meanwhile
  CallStart start;
  // Without `__set__` the object's own attribute goes first.
  if (!Py_TYPE(descriptor)->tp_descr_set) start.value = Py_XNewRef(own_attribute(object, name));
  if (!start.value && !PyErr_Occurred()) start = start_getter(s, frame, descriptor, object);
  Py_DECREF(descriptor);
  return start;
}

/// `__getattribute__` as found on the class: CPython's own generic one, or a call.
CallStart start_getattribute(Semantics& s, Frame& frame, PyObject* object, PyObject* name) {
  PyObject* method = _PyType_Lookup(Py_TYPE(object), names_of.getattribute_);
  const bool generic = !method || (Py_IS_TYPE(method, &PyWrapperDescr_Type) &&
                                   reinterpret_cast<PyWrapperDescrObject*>(method)->d_wrapped ==
                                       reinterpret_cast<void*>(PyObject_GenericGetAttr));
  if (generic) return generic_get(s, frame, object, name);
  return start_required(s, frame, object, names_of.getattribute_, {name});
}

PyObject* hooked_get(Semantics& s, Frame& frame, PyObject* object, PyObject* name) {
  PyObject* value = run_to_end(s, start_getattribute(s, frame, object, name));
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  // CPython's lookup takes an exception that is pending for its own: put it aside.
  PyObject* missing = take_raised();
  if (!_PyType_Lookup(Py_TYPE(object), names_of.getattr_)) {
    set_raised(missing);
    return nullptr;
  }
  Py_DECREF(missing);
  PyObject* found = call_required(s, frame, object, names_of.getattr_, {name});
  if (!found) complete_attribute_error(object, name);
  return found;
}

/// A module without the attribute may have a `__getattr__` function.
PyObject* module_get(Semantics& s, Frame& frame, PyObject* module, PyObject* name) {
  PyObject* value = PyDict_GetItemWithError(PyModule_GetDict(module), name);
  if (value && !_PyType_Lookup(Py_TYPE(module), name)) return Py_NewRef(value);
  PyErr_Clear();
  PyObject* hook = value ? nullptr : PyDict_GetItemWithError(PyModule_GetDict(module), names_of.getattr_);
  if (!hook || !PyFunction_Check(hook)) return PyObject_GetAttr(module, name);
  value = PyObject_GenericGetAttr(module, name);
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  Py_INCREF(hook);
  value = s.call(frame, hook, &name, 1, nullptr);
  Py_DECREF(hook);
  return value;
}

}  // namespace

CallStart Semantics::start_get_attr(Frame& frame, PyObject* object, PyObject* name) {
  getattrofunc get = Py_TYPE(object)->tp_getattro;
  if (get == PyObject_GenericGetAttr) return generic_get(*this, frame, object, name);
  if (get == python_slots.get_attr_hook) return {hooked_get(*this, frame, object, name), nullptr};
  if (get == python_slots.get_attr) return start_getattribute(*this, frame, object, name);
  if (get == PyModule_Type.tp_getattro) return {module_get(*this, frame, object, name), nullptr};
  return {PyObject_GetAttr(object, name), nullptr};
}

PyObject* Semantics::get_attr(Frame& frame, PyObject* object, PyObject* name) {
  return run_to_end(*this, start_get_attr(frame, object, name));
}

int Semantics::get_method(Frame& frame, PyObject* object, PyObject* name, PyObject** method) {
  if (Py_TYPE(object)->tp_getattro == PyObject_GenericGetAttr) {
    PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
    if (!descriptor || !getter_is_python(descriptor)) {
      const int unbound = _PyObject_GetMethod(object, name, method);
      return *method ? unbound : -1;
    }
  }
  *method = get_attr(frame, object, name);
  return *method ? 0 : -1;
}

int Semantics::set_attr(Frame& frame, PyObject* object, PyObject* name, PyObject* value) {
  setattrofunc set = Py_TYPE(object)->tp_setattro;
  PyObject* result = nullptr;
  if (set == python_slots.set_attr) {
    PyObject* method = _PyType_Lookup(Py_TYPE(object), names_of.setattr_);
    if (!method || !PyFunction_Check(method)) return PyObject_SetAttr(object, name, value);
    result = call_required(*this, frame, object, names_of.setattr_, {name, value});
  } else if (set == PyObject_GenericSetAttr) {
    PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
    descrsetfunc store = descriptor ? Py_TYPE(descriptor)->tp_descr_set : nullptr;
    if (store == python_slots.descr_set && store) {
      result = call_required(*this, frame, descriptor, names_of.set_, {object, value});
    } else if (PyObject* setter = store ? property_setter(descriptor) : nullptr) {
      PyObject* args[] = {object, value};
      result = call(frame, setter, args, 2, nullptr);
    } else {
      return PyObject_SetAttr(object, name, value);
    }
  } else {
    return PyObject_SetAttr(object, name, value);
  }
  Py_XDECREF(result);
  return result ? 0 : -1;
}

int Semantics::delete_attr(Frame& frame, PyObject* object, PyObject* name) {
  if (Py_TYPE(object)->tp_setattro == python_slots.set_attr) {
    PyObject* method = _PyType_Lookup(Py_TYPE(object), names_of.delattr_);
    if (method && PyFunction_Check(method)) {
      PyObject* result = call_required(*this, frame, object, names_of.delattr_, {name});
      Py_XDECREF(result);
      return result ? 0 : -1;
    }
  }
  return PyObject_SetAttr(object, name, nullptr);
}

int Semantics::get_special(Frame&, PyObject* object, PyObject* name, PyObject** method) {
  *method = lookup_special(object, name);
  if (*method) return 1;
  return PyErr_Occurred() ? -1 : 0;
}

int Semantics::get_super_attr(Frame& frame, PyObject* super_type, PyObject* cls, PyObject* self,
                              PyObject* name, bool method, bool implicit, PyObject** result) {
  PyObject* args[] = {cls, self};
  // Whatever `super` names is called; without arguments the builtin looks at the frame, which is in place.
  PyObject* proxy =
      call(frame, super_type, args,
           implicit && super_type != reinterpret_cast<PyObject*>(&PySuper_Type) ? 0 : 2, nullptr);
  if (!proxy) return -1;
  PyObject* value = get_attr(frame, proxy, name);
  Py_DECREF(proxy);
  if (!value) return -1;
  // A bound method of self is taken apart, so that the call that follows needs no method object.
  if (method && PyMethod_Check(value) && PyMethod_GET_SELF(value) == self) {
    *result = Py_NewRef(PyMethod_GET_FUNCTION(value));
    Py_DECREF(value);
    return 1;
  }
  *result = value;
  return 0;
}

}  // namespace bolt::interp

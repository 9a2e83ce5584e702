// interp/special.cpp
#include "interp/special.h"

#include "interp/call.h"

namespace bolt::interp {

CallStart start_special(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                        std::initializer_list<PyObject*> args) {
  PyObject* method = _PyType_Lookup(Py_TYPE(self), name);
  if (!method) return {};
  Py_INCREF(method);
  CallStart start;
  PyObject* values[4] = {self};
  size_t count = 1;
  for (PyObject* arg : args) values[count++] = arg;
  if (PyType_HasFeature(Py_TYPE(method), Py_TPFLAGS_METHOD_DESCRIPTOR)) {
    start = semantics.start_call(frame, method, values, count, nullptr);
  } else if (descrgetfunc get = Py_TYPE(method)->tp_descr_get) {
    PyObject* bound = get(method, self, reinterpret_cast<PyObject*>(Py_TYPE(self)));
    if (bound) start = semantics.start_call(frame, bound, values + 1, count - 1, nullptr);
    Py_XDECREF(bound);
  } else {
    start = semantics.start_call(frame, method, values + 1, count - 1, nullptr);
  }
  Py_DECREF(method);
  return to_caller(semantics, start);
}

CallStart start_required(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                         std::initializer_list<PyObject*> args) {
  const CallStart start = start_special(semantics, frame, self, name, args);
  if (start.failed() && !PyErr_Occurred()) PyErr_SetObject(PyExc_AttributeError, name);
  return start;
}

PyObject* call_special(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                       std::initializer_list<PyObject*> args) {
  return run_to_end(semantics, start_special(semantics, frame, self, name, args));
}

PyObject* call_required(Semantics& semantics, Frame& frame, PyObject* self, PyObject* name,
                        std::initializer_list<PyObject*> args) {
  return run_to_end(semantics, start_required(semantics, frame, self, name, args));
}

CallStart start_descriptor(Semantics& semantics, Frame& frame, PyObject* descriptor, PyObject* object,
                           PyObject* type) {
  PyObject* method = _PyType_Lookup(Py_TYPE(descriptor), names_of.get_);
  if (!method) return {Py_NewRef(descriptor), nullptr};
  PyObject* values[] = {descriptor, object, type};
  for (PyObject* each : values) Py_INCREF(each);
  Py_INCREF(method);
  const CallStart start = semantics.start_call(frame, method, values, 3, nullptr);
  Py_DECREF(method);
  for (PyObject* each : values) Py_DECREF(each);
  return to_caller(semantics, start);
}

CallStart start_getter(Semantics& semantics, Frame& frame, PyObject* descriptor, PyObject* object) {
  Py_INCREF(descriptor);
  CallStart start;
  if (Py_TYPE(descriptor)->tp_descr_get == python_slots.property_get) {
    start =
        to_caller(semantics, semantics.start_call(frame, property_getter(descriptor), &object, 1, nullptr));
  } else {
    start =
        start_descriptor(semantics, frame, descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  }
  Py_DECREF(descriptor);
  return start;
}

}  // namespace bolt::interp

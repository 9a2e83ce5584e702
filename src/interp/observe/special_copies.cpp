// interp/observe/special_copies.cpp: see special_calls.h. Copies of objects, and weak references to them.
#include "interp/observe/special_calls.h"
#include "interp/special.h"

namespace bolt::observe {
namespace {

/// object.__reduce_ex__ of an instance whose class leaves everything to the default (copy.copy and deepcopy
/// ask for it): the answer is made of the instance's own dict, whose reads are then guarded like any.
PyObject* reduce_plain_instance(const Call& c) {
  if (c.nargs != 2 || !PyLong_Check(c.args[1]) || PyLong_AsLong(c.args[1]) < 2) return PyErr_Clear(), nullptr;
  PyObject* object = c.args[0];
  PyTypeObject* type = Py_TYPE(object);
  PyObject** dict_slot = _PyObject_GetDictPtr(object);
  if (!interp::is_heap_type(type) || type->tp_itemsize || !dict_slot) return nullptr;
  if (PyList_Check(object) || PyDict_Check(object)) return nullptr;
  static PyTypeObject* const plain = [] {  // dict and weak references, nothing else
    PyObject* made = PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Plain");
    return reinterpret_cast<PyTypeObject*>(made);
  }();
  if (!plain || type->tp_basicsize != plain->tp_basicsize) return nullptr;
  for (const char* hook : {"__getnewargs__", "__getnewargs_ex__", "__reduce__", "__getstate__"}) {
    PyRef name = PyRef::steal(PyUnicode_InternFromString(hook));
    PyObject* found = c.recording.world.type_attr(type, name.get());
    if (found && found != PyDict_GetItem(interp::type_dict(&PyBaseObject_Type), name.get())) return nullptr;
  }
  PyRef registry = PyRef::steal(bolt::import_module("copyreg"));
  PyRef make = PyRef::steal(registry ? PyObject_GetAttrString(registry.get(), "__newobj__") : nullptr);
  if (!make) return nullptr;
  c.recording.world.pin(make.get());
  PyObject* dict = c.recording.world.instance_dict(object);
  return Py_BuildValue("O(O)OOO", make.get(), type, dict ? dict : Py_None, Py_None, Py_None);
}

PyObject* reduce(const Call& c) {
  PyObject* parts = reduce_plain_instance(c);
  if (!parts && !PyErr_Occurred() && c.nargs && c.recording.world.find(c.args[0]))
    c.recording.end_here(c.frame,
                         std::string("a ") + Py_TYPE(c.args[0])->tp_name + " from outside is reduced");
  return parts;
}

PyObject* referent(const Call& c) {
  if (c.nargs != 1 || !PyWeakref_Check(c.args[0])) return nullptr;
  PyRef name = PyRef::steal(PyUnicode_InternFromString("referent"));
  return Py_XNewRef(c.recording.world.field(c.args[0], offsetof(PyWeakReference, wr_object), name.get()));
}

/// One with a callback is there to be kept, in a table that forgets its entries.
PyObject* make_reference(const Call& c) {
  if (c.nargs > 1 && c.args[1] != Py_None)
    c.recording.end_here(c.frame, "a weak reference with a callback is made");
  return nullptr;
}

}  // namespace

void add_copy_calls(SpecialCalls& table) {
  table.insert({
      {"object.__reduce_ex__", reduce},
      {"weakref.ReferenceType", make_reference},
      {"call.weakref.ReferenceType", referent},
      {"call.weakref.KeyedRef", referent},
  });
}

}  // namespace bolt::observe

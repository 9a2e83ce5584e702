// observe/calls/special_copies.cpp
// See special_calls.h. Copies of objects, and weak references to them.
#include "observe/calls/special_calls.h"

#include <string_view>

#include "interp/special.h"

namespace bolt::observe {
namespace {

/// object.__reduce_ex__ of an instance whose class leaves everything to the default (copy.copy and deepcopy
/// ask for it): the answer is made of the instance's own dict, whose reads are then guarded like any.
PyObject* reduce_plain_instance(const SpecialCall& c) {
  if (c.nargs != 2 || !PyLong_Check(c.args[1]) || PyLong_AsLong(c.args[1]) < 2) return PyErr_Clear(), nullptr;
  PyObject* object = c.args[0];
  PyTypeObject* type = Py_TYPE(object);
  PyObject** dict_slot = _PyObject_GetDictPtr(object);
  if (!is_heap_type(type) || type->tp_itemsize || !dict_slot) return nullptr;
  if (PyList_Check(object) || PyDict_Check(object)) return nullptr;
  static PyTypeObject* const plain = [] {  // dict and weak references, nothing else
    PyObject* made = PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(){}", "Plain");
    return reinterpret_cast<PyTypeObject*>(made);
  }();
  if (!plain || type->tp_basicsize != plain->tp_basicsize) return nullptr;
  PyRef state;
  for (const char* hook : {"__getnewargs__", "__getnewargs_ex__", "__reduce__", "__getstate__"}) {
    PyRef name = PyRef::steal(PyUnicode_InternFromString(hook));
    PyObject* found = c.recording.world.type_attr(type, name.get());
    if (!found || found == PyDict_GetItem(type_dict(&PyBaseObject_Type), name.get())) continue;
    if (!PyFunction_Check(found) || hook != std::string_view("__getstate__")) return nullptr;
    state = PyRef::steal(interp::call_required(c.recording, c.frame, object, name.get(), {}));
    if (!state) return nullptr;
  }
  // Slots that the class says it has. Lists that are empty copyreg leaves behind itself, so they are no fact.
  PyObject* slots = PyDict_GetItemString(type_dict(type), "__slotnames__");
  if (slots && (!PyList_CheckExact(slots) || PyList_GET_SIZE(slots))) return nullptr;
  PyRef registry = PyRef::steal(bolt::import_module("copyreg"));
  PyRef make = PyRef::steal(registry ? PyObject_GetAttrString(registry.get(), "__newobj__") : nullptr);
  if (!make) return nullptr;
  c.recording.world.pin(make.get());
  PyObject* dict = state ? state.get() : c.recording.world.instance_dict(object);
  return Py_BuildValue("O(O)OOO", make.get(), type, dict ? dict : Py_None, Py_None, Py_None);
}

/// Attributes of the object's own, borrowed; None where it has none.
PyObject* own_attributes(const SpecialCall& c, PyObject* object) {
  PyObject* dict = c.recording.world.instance_dict(object);
  if (dict && PyDict_GET_SIZE(dict)) return dict;
  if (dict) c.recording.world.read_whole(dict);
  return Py_None;
}

/// What an OrderedDict is made again of, which are its items, or a set of plain things, which are told in a
/// list.
PyObject* reduce_container(const SpecialCall& c) {
  if (c.nargs != 2) return nullptr;
  PyObject* object = c.args[0];
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  if (PyODict_CheckExact(object)) {
    PyRef items = PyRef::steal(PyObject_CallMethod(object, "items", nullptr));
    PyRef iterator = PyRef::steal(items ? c.recording.get_iter(c.frame, items.get()) : nullptr);
    return iterator ? Py_BuildValue("O()OOO", type, own_attributes(c, object), Py_None, iterator.get())
                    : nullptr;
  }
  if (!PyAnySet_CheckExact(object)) return nullptr;
  PyRef items = native_items(object);
  for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i)
    if (PyObject* item = PyList_GET_ITEM(items.get(), i); !PyUnicode_CheckExact(item) && !is_number(item))
      return nullptr;
  c.recording.touch(c.frame, object);
  return items ? Py_BuildValue("O(O)O", type, items.get(), Py_None) : nullptr;
}

PyObject* reduce(const SpecialCall& c) {
  PyObject* parts = reduce_plain_instance(c);
  if (!parts && !PyErr_Occurred()) parts = reduce_container(c);
  if (!parts && !PyErr_Occurred() && c.nargs && c.recording.world.find(c.args[0]))
    c.recording.end_here(c.frame, {Why::reduced, Py_TYPE(c.args[0])->tp_name});
  return parts;
}

/// Later calls ask the same. It is no attribute of tensors, but asked like one.
PyObject* owns_storage(const SpecialCall& c) {
  if (c.nargs != 1 || !guard::is_tensor(c.args[0])) return nullptr;
  static PyGetSetDef getter{
      "owns_storage", [](PyObject* tensor, void*) { return PyBool_FromLong(guard::owns_storage(tensor)); },
      nullptr, nullptr, nullptr};
  static PyObject* const question =
      PyDescr_NewGetSet(reinterpret_cast<PyTypeObject*>(guard::tensor_class()), &getter);
  if (!question) return nullptr;
  PyObject* answer = guard::owns_storage(c.args[0]) ? Py_True : Py_False;
  if (Known* known = c.recording.world.find(c.args[0])) known->source->assume_answer(question, answer);
  return Py_NewRef(answer);
}

PyObject* referent(const SpecialCall& c) {
  if (c.nargs != 1 || !PyWeakref_Check(c.args[0])) return nullptr;
  PyRef name = PyRef::steal(PyUnicode_InternFromString("referent"));
  return Py_XNewRef(c.recording.world.field(c.args[0], offsetof(PyWeakReference, wr_object), name.get()));
}

/// One with a callback is there to be kept, in a table that forgets its entries.
PyObject* make_reference(const SpecialCall& c) {
  if (c.nargs > 1 && c.args[1] != Py_None) c.recording.end_here(c.frame, Why::weak_callback);
  if (c.nargs) c.recording.world.goodbyes.referred_weakly(c.args[0]);
  return nullptr;
}

}  // namespace

void add_copy_calls(SpecialCalls& table) {
  table.insert({
      {"object.__reduce_ex__", reduce},
      {"torchbolt._C._owns_storage", owns_storage},
      {"weakref.ReferenceType", make_reference},
      {"call.weakref.ReferenceType", referent},
      {"call.weakref.KeyedRef", referent},
  });
}

}  // namespace bolt::observe

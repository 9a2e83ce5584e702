// observe/rebuild/rebuild_containers.cpp
// See rebuild.h. Tuples, lists, dicts and the like.
#include "observe/rebuild/rebuild.h"
#include "python/slots.h"

namespace bolt::observe {

namespace {

bool is_struct_sequence(PyTypeObject* type) {
  return type->tp_base == &PyTuple_Type && type->tp_new != PyTuple_Type.tp_new &&
         PyDict_GetItemString(type_dict(type), "n_sequence_fields");
}

/// A tuple and perhaps a dict: no C state of its own (namedtuples, and classes made of them).
bool is_tuple_class(PyTypeObject* type) {
  while (is_heap_type(type)) type = type->tp_base;
  return type == &PyTuple_Type;
}

/// Its class, for the recipe; null where that is `native` itself.
PyObject* subclass_of(PyTypeObject* native, PyObject* object) {
  return Py_IS_TYPE(object, native) ? nullptr : class_of(object);
}

}  // namespace

int Rebuilder::tuple_value(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  PyObject* cls = subclass_of(&PyTuple_Type, object);
  if (cls && !is_struct_sequence(type) && type->tp_base != &PyTuple_Type && !is_tuple_class(type))
    return fail(object);
  int made = add(Make::tuple, cls, 0, items(object));
  if (cls) fill_own(made, object);
  return made;
}

int Rebuilder::list_value(PyObject* object) {
  PyObject* cls = subclass_of(&PyList_Type, object);
  int made = made_[object] = add(Make::list, cls);
  for (int part : items(object)) fill({Fill::append, made, -1, part, 0});
  if (cls) fill_own(made, object);
  return made;
}

/// What the run made of a list or tuple from outside, whatever that holds.
int Rebuilder::joined_value(PyObject* object, const Known& known) {
  const auto [in_front, old, behind] = Lengths::parts_of(known);
  auto count = [&](Py_ssize_t number) { return value(PyRef::steal(PyLong_FromSsize_t(number)).get()); };
  const Joins how = PyTuple_Check(object) ? Joins::tuple : Joins::list;
  std::vector<int> parts = {value(joining_function(how)),
                            value(known.of->object.get()),
                            count(known.window.last < 0 ? known.window.front : -known.window.last),
                            count(known.window.back),
                            count(in_front),
                            count(0)};
  for (Py_ssize_t i = 0; i < in_front + old + behind; ++i)
    if (i < in_front || i >= in_front + old) parts.push_back(value(PySequence_Fast_GET_ITEM(object, i)));
  return add(Make::call, nullptr, 0, std::move(parts));
}

int Rebuilder::dict_value(PyObject* object) {
  int made;
  if (is_instance_of_named(object, "collections.defaultdict")) {
    PyRef factory = PyRef::steal(PyObject_GetAttrString(object, "default_factory"));
    made = add(Make::call, nullptr, 0, {value(class_of(object)), value(factory.get())});
  } else {
    made = add(Make::dict, subclass_of(&PyDict_Type, object));
  }
  made_[object] = made;
  auto add_item = [&](PyObject* key, PyObject* item) {
    const int key_value = value(key);
    fill({Fill::item, made, key_value, value(item), 0});
  };
  if (PyODict_Check(object)) {
    PyRef list = native_items(object);
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list.get()); ++i) {
      PyObject* key = PyList_GET_ITEM(list.get(), i);
      add_item(key, PyDict_GetItemWithError(object, key));
    }
  } else {  // asking for an item may run a `__hash__` of the user's
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(object, &position, &key, &item)) add_item(key, item);
  }
  if (!PyDict_CheckExact(object)) fill_own(made, object);
  return made;
}

int Rebuilder::set_value(PyObject* object) {
  PyRef list = native_items(object);
  if (!list) return PyErr_Clear(), fail(object, "cannot be made again");
  if (PyFrozenSet_CheckExact(object)) return add(Make::frozenset, nullptr, 0, items(list.get()));
  PyObject* cls = subclass_of(&PySet_Type, object);
  int made = made_[object] = add(Make::set, cls);
  for (int part : items(list.get())) fill({Fill::add, made, -1, part, 0});
  if (cls) fill_own(made, object);
  return made;
}

int Rebuilder::deque_value(PyObject* object) {
  PyTypeObject* native = native_type("collections", "deque");
  PyRef list = native_items(object);
  PyRef limit = PyRef::steal(PyObject_GetAttrString(object, "maxlen"));
  Py_ssize_t maxlen = limit && limit.get() != Py_None ? PyLong_AsSsize_t(limit.get()) : -1;
  if (!list) return PyErr_Clear(), fail(object, "cannot be made again");
  PyObject* cls = subclass_of(native, object);
  const int made = add(Make::deque, cls, maxlen, items(list.get()));
  if (cls) fill_own(made, object);
  return made;
}

int Rebuilder::slice_value(PyObject* object) {
  auto* slice = reinterpret_cast<PySliceObject*>(object);
  return add(Make::slice, nullptr, 0, {value(slice->start), value(slice->stop), value(slice->step)});
}

int Rebuilder::bytearray_value(PyObject* object) {
  PyRef bytes = PyRef::steal(PyBytes_FromObject(object));
  return add(Make::call, nullptr, 0, {value(class_of(object)), value(bytes.get())});
}

/// keys(), values() or items() of a dict.
int Rebuilder::view_value(PyObject* object) {
  const char* method = PyDictKeys_Check(object) ? "keys" : PyDictValues_Check(object) ? "values" : "items";
  PyRef name = PyRef::steal(PyUnicode_InternFromString(method));
  const int dict = value(reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict));
  return add(Make::call, nullptr, 0, {attribute_of(dict, name.get())});
}

}  // namespace bolt::observe

// observe/writes/undo.cpp
#include "observe/writes/undo.h"

#include <algorithm>

#include "observe/world.h"
#include "python/compat.h"

namespace bolt::observe {
namespace {

/// A method of `native`, a type of C: a class on top of it may have its own.
bool call(PyTypeObject& native, const char* name, PyObject* object, PyObject* arg = nullptr) {
  auto* type = reinterpret_cast<PyObject*>(&native);
  return PyRef::steal(PyObject_CallMethod(type, name, arg ? "OO" : "O", object, arg)).get() != nullptr;
}

int set_item(PyObject* dict, PyObject* key, PyObject* item) {
  return PyODict_Check(dict) ? PyODict_SetItem(dict, key, item) : PyDict_SetItem(dict, key, item);
}
int delete_item(PyObject* dict, PyObject* key) {
  return PyODict_Check(dict) ? PyODict_DelItem(dict, key) : PyDict_DelItem(dict, key);
}

/// How many keys of `before`, from the front, are where they were.
Py_ssize_t in_place(PyObject* dict, PyObject* before) {
  const PyRef now = native_items(dict);
  Py_ssize_t count = 0;
  for (; now && count < std::min(PyList_GET_SIZE(now.get()), PyList_GET_SIZE(before)); ++count)
    if (PyList_GET_ITEM(now.get(), count) != PyList_GET_ITEM(before, count)) break;
  return count;
}

/// Key by key: it may be the globals of a module, which another thread reads meanwhile.
bool put_back_dict(PyObject* dict, PyObject* before) {
  const PyRef now = native_items(dict), then = native_items(before);
  if (!now || !then) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(now.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(now.get(), i);
    const int was_there = PyDict_Contains(before, key);
    if (was_there < 0 || (!was_there && delete_item(dict, key) < 0)) return false;
  }
  const Py_ssize_t stay = in_place(dict, then.get());
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(then.get()); ++i) {
    PyObject *key = PyList_GET_ITEM(then.get(), i), *item = PyDict_GetItemWithError(before, key);
    if (i >= stay && PyDict_Contains(dict, key) == 1 && delete_item(dict, key) < 0) return false;
    if (PyDict_GetItemWithError(dict, key) != item && set_item(dict, key, item) < 0) return false;
  }
  return true;
}

bool put_back_contents(PyObject* object, PyObject* before) {
  if (PyDict_Check(object)) return put_back_dict(object, before);
  if (PyList_Check(object)) return PyList_SetSlice(object, 0, PyList_GET_SIZE(object), before) == 0;
  if (is_set(object)) return PySet_Clear(object) == 0 && call(PySet_Type, "update", object, before);
  if (PyCell_Check(object))
    return PyCell_Set(object, PyTuple_GET_SIZE(before) ? PyTuple_GET_ITEM(before, 0) : nullptr) == 0;
  static PyTypeObject* const deque = native_type("collections", "deque");
  return deque && call(*deque, "clear", object) && call(*deque, "extend", object, before);
}

}  // namespace

void WorldUndo::contents(PyObject* container, PyObject* before) {
  changes_.push_back({Change::contents, PyRef::share(container), PyRef::share(before), 0, {}});
}
void WorldUndo::field(PyObject* object, Py_ssize_t offset, PyObject* before) {
  changes_.push_back({Change::field, PyRef::share(object), PyRef::share(before), offset, {}});
}
void WorldUndo::attribute(PyObject* cls, PyObject* name, PyObject* before) {
  changes_.push_back({Change::attribute, PyRef::share(cls), PyRef::share(before), 0, PyRef::share(name)});
}
void WorldUndo::tensor(Effect part, PyObject* tensor, PyObject* before) {
  const Change::Kind kind = part == Effect::set_grad ? Change::gradient : Change::data;
  changes_.push_back({kind, PyRef::share(tensor), PyRef::share(before), 0, {}});
}
void WorldUndo::context(PyObject* variable, PyObject* before) {
  changes_.push_back({Change::context, PyRef::share(variable), PyRef::share(before), 0, {}});
}

bool WorldUndo::run(const Change& change) {
  PyObject *object = change.object.get(), *before = change.before.get();
  switch (change.kind) {
    case Change::contents: return put_back_contents(object, before);
    case Change::field: {
      auto** slot = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + change.offset);
      Py_XSETREF(*slot, Py_XNewRef(before));
      return true;
    }
    case Change::attribute: return PyType_Type.tp_setattro(object, change.name.get(), before) == 0;
    case Change::gradient: return observe::set_grad(object, before) == 0;
    case Change::data: return observe::set_data(object, before) == 0;
    case Change::context: return PyRef::steal(PyContextVar_Set(object, before)).get() != nullptr;
  }
  return true;
}

void WorldUndo::put_back() const {
  const RaisedAside raised;
  for (const Change& change : changes_)
    if (!run(change)) PyErr_Clear();
}

}  // namespace bolt::observe

// observe/writes/give_back.cpp
#include "observe/writes/give_back.h"

#include <unordered_set>
#include <utility>

#include "observe/ends/frames.h"
#include "python/compat.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

class GivingBack {
 public:
  explicit GivingBack(World& world) : world_(world) {}

  /// What is in `slot`, and what is in that as far as the run made it.
  void in_slot(PyObject*& slot, int depth) {
    if (!slot) return;
    if (can_be_followed(slot) || guard::has_parts(slot))
      if (PyObject* own = world_.original(slot); own != slot) {
        Py_SETREF(slot, Py_NewRef(own));
        return;
      }
    if (depth == 0 || !holds_others(slot) || world_.find(slot) || !seen_.insert(slot).second) return;
    inside(slot, depth - 1);
  }

  void inside(PyObject* object, int depth) {
    if (PyTuple_Check(object) || PyList_Check(object)) {
      for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) in_slot(PySequence_Fast_ITEMS(object)[i], depth);
    } else if (is_deque(object)) {
      in_deque(object, depth);
    } else if (PyDict_Check(object)) {
      in_dict(object, depth);
    } else if (PyCell_Check(object)) {
      in_slot(reinterpret_cast<PyCellObject*>(object)->ob_ref, depth);
    } else if (is_python_class(Py_TYPE(object))) {
      PyObject** dict = _PyObject_GetDictPtr(object);
      if (dict && *dict && !world_.find(*dict)) in_dict(*dict, depth);
    }
  }

 private:
  static bool holds_others(PyObject* object) {
    return PyTuple_CheckExact(object) || PyList_CheckExact(object) || PyDict_CheckExact(object) ||
           is_deque(object) || (is_python_class(Py_TYPE(object)) && !guard::is_tensor(object));
  }

  void in_deque(PyObject* deque, int depth) {
    const PyRef items = native_items(deque);
    for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
      PyRef item = PyRef::share(PyList_GET_ITEM(items.get(), i));
      PyObject* own = Py_NewRef(item.get());
      in_slot(own, depth);
      if (own != item.get() && PySequence_SetItem(deque, i, own) < 0) PyErr_Clear();
      Py_DECREF(own);
    }
  }

  // The keys stay, so neither is the order another nor is one of them asked for its hash.
  void in_dict(PyObject* dict, int depth) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    Py_hash_t hash;
    while (_PyDict_Next(dict, &position, &key, &value, &hash)) {
      PyObject* item = Py_NewRef(value);
      in_slot(item, depth);
      if (item != value && _PyDict_SetItem_KnownHash(dict, key, item, hash) < 0) PyErr_Clear();
      Py_DECREF(item);
    }
  }

  World& world_;
  std::unordered_set<PyObject*> seen_;
};

}  // namespace

void give_numbers_back(World& world, const interp::Frame* innermost, const interp::Frame* entry,
                       PyObject*& result) {
  constexpr int kDepth = 6;
  if (!world.has_copies()) return;
  GivingBack giving(world);
  auto back = [&](PyObject*& slot) { giving.in_slot(slot, kDepth); };
  for (const interp::Frame* at = innermost; at;) {
    for_each_slot(*at, back);
    const interp::Frame* bottom = interp::bottom_of(*at);
    at = bottom == entry ? nullptr : bottom->back;
  }
  back(result);
  for (PyObject* container : std::exchange(world.lent_numbers, {})) giving.inside(container, kDepth);
  for (PyObject* container : world.writes.written) {
    giving.inside(container, kDepth);
    giving.inside(world.find(container)->before.get(), kDepth);  // what may be put back
  }
  for (const WrittenField& field : world.writes.written_fields)
    back(*reinterpret_cast<PyObject**>(reinterpret_cast<char*>(field.object.get()) + field.offset));
  for (const WrittenClass& each : world.writes.written_classes) {
    PyRef value = PyRef::share(
        PyDict_GetItemWithError(type_dict(reinterpret_cast<PyTypeObject*>(each.cls.get())), each.name.get()));
    PyObject* own = value.get();
    if (own) Py_INCREF(own), back(own);
    if (own != value.get() && PyObject_SetAttr(each.cls.get(), each.name.get(), own) < 0) PyErr_Clear();
    Py_XDECREF(own);
  }
}

}  // namespace bolt::observe

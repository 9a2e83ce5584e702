// observe/world.cpp
#include "observe/world.h"

#include <map>
#include <unordered_set>
#include <utility>

#include "observe/calls/cfunctions.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

bool is_identity_key(PyObject* key) {
  return PyType_Check(key) || PyFunction_Check(key) || is_builtin_function(key) || is_module(key);
}

}  // namespace

bool World::is_key(PyObject* key) {
  if (guard::is_leaf(key) || is_identity_key(key)) return true;
  if (!PyTuple_CheckExact(key)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
    if (!is_key(PyTuple_GET_ITEM(key, i))) return false;
  return true;
}

bool World::is_told_by_identity(PyObject* object) {
  if (guard::is_tensor(object)) return true;
  return Py_TYPE(object)->tp_hash == PyBaseObject_Type.tp_hash &&
         Py_TYPE(object)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

bool is_deque(PyObject* object) {
  static PyTypeObject* const type = native_type("collections", "deque");
  return type && is_instance_of(object, type);
}

PyRef native_items(PyObject* container) {
  if (PyList_Check(container)) return PyRef::steal(PyList_GetSlice(container, 0, PyList_GET_SIZE(container)));
  if (PyODict_Check(container)) return native_list(container, &PyODict_Type);
  if (PyDict_Check(container)) return PyRef::steal(PyDict_Keys(container));
  if (PyTuple_Check(container)) return native_list(container, &PyTuple_Type);
  if (is_set(container)) return native_list(container, &PySet_Type);
  return native_list(container, native_type("collections", "deque"));
}

static PySequenceMethods* methods_of_deque() {
  static PyTypeObject* const type = native_type("collections", "deque");
  return type->tp_as_sequence;
}

PyObject* native_item(PyObject* container, Py_ssize_t index) {
  if (is_sequence(container)) return PySequence_Fast_GET_ITEM(container, index);
  return PyRef::steal(methods_of_deque()->sq_item(container, index)).get();
}

int set_native_item(PyObject* container, Py_ssize_t index, PyObject* item) {
  if (PyList_Check(container)) return PyList_SetItem(container, index, Py_NewRef(item));
  return methods_of_deque()->sq_ass_item(container, index, item);
}

bool is_understood_container(PyObject* object) {
  return PyList_Check(object) || PyTuple_Check(object) || PyDict_Check(object) || is_set(object) ||
         is_deque(object);
}

World::World(RecorderHooks& hooks, bool& watch)
    : tree(std::make_unique<guard::SourceTree>()),
      goodbyes(*this, hooks, watch),
      writes(*this),
      lengths(*this, hooks),
      places(*this, hooks),
      lists(*this, hooks),
      followed_keys(*this),
      open_numbers(*this, hooks),
      hooks_(hooks),
      watch_(watch) {}

Known* World::find(PyObject* object) {
  Known** known = known_.find(object);
  return known ? *known : nullptr;
}

Known& World::know(PyObject* object, Source* source) {
  Known*& known = known_[object];
  if (!known) {
    known = &store_.emplace_back();
    known->source = source;
    known->object = PyRef::share(object);
    goodbyes.met(*known);
  }
  return *known;
}

Known& World::pin(PyObject* object) {
  Known* known = find(object);
  return known ? *known : know(object, tree->constant(object));
}

/// Classes and modules are constants wherever they turn up.
Source* World::source_for(PyObject* object) {
  if (Known* known = find(object)) return known->source;
  if (PyType_Check(object) || is_module(object)) return pin(object).source;
  return nullptr;
}

bool World::is_pinned(PyObject* object, const Source* source) const {
  const bool from_constant = source->is_static;
  if (PyFunction_Check(object)) return from_constant;
  if (PyType_Check(object) || is_module(object)) return true;
  // A descriptor found on a class; a built-in function found in a module.
  if (source->access == Access::type_attr || source->access == Access::super_attr)
    return Py_TYPE(object)->tp_descr_get || is_builtin_function(object);
  if (is_builtin_function(object) || PyCapsule_CheckExact(object)) return from_constant;
  PyTypeObject* type = Py_TYPE(object);
  bool native = !(type->tp_flags & Py_TPFLAGS_HEAPTYPE);
  return native && from_constant && type->tp_call && !is_understood_container(object);
}

void World::reached(PyObject* object, Source* source) {
  if (guard::is_leaf(object)) return source->assume(Check::equals, object);
  if (is_pinned(object, source)) {
    source->assume(Check::is, object);
    pin(object);
    return;
  }
  const bool is_method = is_bound_method(object);
  if (is_builtin_function(object) && !is_method) {
    source->assume(Check::is_bound, object);
    pin(object);
    return;
  }
  if (Known* known = find(object)) {
    if (known->source == source) return;
    if (known->source->access == Access::constant)
      source->assume(Check::is, object);
    else
      source->assume(Check::same_as, nullptr, 0, known->source);
    return;
  }
  source->assume(Check::type_is, reinterpret_cast<PyObject*>(Py_TYPE(object)));
  if (PyRef value = guard::plain_value(object)) source->assume(Check::value, value.get());
  know(object, source);
  if (is_method) read_method(object, source);
  if (guard::is_tensor(object)) {
    int slot = tensors.add(object);
    source->assume(Check::tensor, nullptr, slot);
    hooks_.input(object, slot, *source, tree->root_names);
    if (hooks_.follows_sizes()) begin_to_follow();
  }
}
void World::compared(PyObject* a, PyObject* b) {
  if (a == b || guard::is_leaf(a) || guard::is_leaf(b)) return;
  if (is_builtin_function(a) && is_builtin_function(b) && PyCFunction_GET_SELF(a) && PyCFunction_GET_SELF(b))
    compared(PyCFunction_GET_SELF(a), PyCFunction_GET_SELF(b));
  Known *x = find(a), *y = find(b);
  if (!x || !y || (x->source->access == Access::constant && y->source->access == Access::constant)) return;
  if (Py_TYPE(a) != Py_TYPE(b)) return;
  x->source->assume(Check::not_same_as, nullptr, 0, y->source);
}

void World::identified(PyObject* object, PyObject* id) {
  Known* known = find(object);
  if (known && known->source->access == Access::constant) return;
  if (known) identified_.insert(object);
  if (id) identities_.push_back({PyRef::share(id), known ? object : nullptr});
}

void World::told_apart(PyObject* object) {
  if (PyUnicode_CheckExact(object)) return use(object);
  if (PyTuple_CheckExact(object))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) told_apart(PyTuple_GET_ITEM(object, i));
  else if (!is_told_by_identity(object))
    use_elements(object);
  else if (find(object) && !is_key(object))
    identified(object, nullptr);
}

void World::keep_apart() {
  guard::Apart told;
  for (PyObject* object : identified_) told.each.push_back(find(object)->source);
  if (told.each.size() > 1) tree->apart.push_back(std::move(told));
  if (writes.written.empty() && writes.written_fields.empty() && writes.written_tensors.empty()) return;
  // Only objects of one type can be one; instance dicts only where their instances can.
  using Sort = std::pair<PyTypeObject*, PyObject*>;
  auto sort_of = [](const Known& known) -> Sort {
    PyObject* owner = nullptr;
    if (known.source->access == Access::instance_dict && known.source->parent)
      for (const guard::Assumption& a : known.source->parent->assumptions)
        if (a.check == Check::type_is) owner = a.value.get();
    return {Py_TYPE(known.object.get()), owner};
  };
  std::map<Sort, guard::Apart> sorts;
  std::unordered_set<const Known*> changed;
  auto add = [&](PyObject* object) {
    Known* known = find(object);
    if (known->object && known->source->access != Access::constant && changed.insert(known).second)
      sorts[sort_of(*known)].each.push_back(known->source);
  };
  for (PyObject* container : writes.written) add(container);
  for (const WrittenField& field : writes.written_fields) add(field.object.get());
  for (const WrittenTensor& each : writes.written_tensors) add(each.tensor.get());
  if (sorts.empty()) return;
  for (const Known& known : store_) {
    if (!known.object || known.source->access == Access::constant || changed.count(&known)) continue;
    if (auto at = sorts.find(sort_of(known)); at != sorts.end()) at->second.others.push_back(known.source);
  }
  for (auto& [sort, apart] : sorts)
    if (apart.each.size() + apart.others.size() > 1) tree->apart.push_back(std::move(apart));
}

void World::let_go() {
  Gone gone = goodbyes.close();
  auto goes_with = [&](PyObject* object) { return object && gone.all.count(object); };
  // What was written in them is not put back then.
  std::vector<PyRef> copies;
  std::erase_if(writes.written, [&](PyObject* container) {
    PyRef& before = find(container)->before;
    bool any = goes_with(container);
    for (PyObject* inside : inside_of(before.get())) any |= goes_with(inside);
    if (any) copies.push_back(std::move(before));
    return any;
  });
  std::erase_if(writes.written_fields, [&](const WrittenField& each) {
    return goes_with(each.object.get()) || goes_with(each.before.get());
  });
  std::erase_if(writes.written_classes,
                [&](const WrittenClass& each) { return goes_with(each.before.get()); });
  std::erase_if(advanced, [&](const Advanced& each) { return goes_with(each.iterator.get()); });
  const std::unordered_set<PyObject*> stays(writes.written.begin(), writes.written.end());
  std::vector<PyRef> rest;
  for (Known& known : store_)
    if (!stays.count(known.object.get())) rest.push_back(std::move(known.object));
  lengths.forget();
  copies.clear(), rest.clear();
  while (!gone.held.empty()) gone.held.pop_back();
}

const World::Identity* World::identity(PyObject* number) const {
  for (const Identity& each : identities_)
    if (PyObject_RichCompareBool(each.id.get(), number, Py_EQ) == 1) return &each;
  return nullptr;
}

bool World::is_plain_key(PyObject* key) { return is_key(key) || is_told_by_identity(key); }

bool World::has_plain_keys(PyObject* dict) {
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value))
    if (!is_plain_key(key)) return false;
  return true;
}

}  // namespace bolt::observe

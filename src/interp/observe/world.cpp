// interp/observe/world.cpp: see world.h.
#include "interp/observe/world.h"

#include <cstddef>
#include <map>
#include <unordered_set>
#include <utility>

#include "guard/iterators.h"
#include "interp/errors.h"
#include "interp/observe/cfunctions.h"
#include "interp/observe/endings.h"
#include "interp/special.h"

namespace bolt::observe {
namespace {

/// Strings that are equal become one object, so that they intern to one source.
PyRef canonical_key(PyObject* key) {
  PyObject* owned = Py_NewRef(key);
  if (PyUnicode_CheckExact(owned)) PyUnicode_InternInPlace(&owned);
  return PyRef::steal(owned);
}

bool is_identity_key(PyObject* key) {
  return PyType_Check(key) || PyFunction_Check(key) || PyCFunction_Check(key) || is_module(key);
}

/// Also (type(p), type(q)), as tables of functions for pairs of classes have it.
bool is_key(PyObject* key) {
  if (guard::is_leaf(key) || is_identity_key(key)) return true;
  if (!PyTuple_CheckExact(key)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
    if (!is_key(PyTuple_GET_ITEM(key, i))) return false;
  return true;
}

/// PyDict_Copy goes through the methods of classes that have an __iter__ of their own, as OrderedDict has.
PyObject* copy_dict(PyObject* dict) {
  if (Py_TYPE(dict)->tp_iter == PyDict_Type.tp_iter) return PyDict_Copy(dict);
  PyRef keys = native_items(dict), copy = PyRef::steal(PyDict_New());
  for (Py_ssize_t i = 0; keys && copy && i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    PyObject* item = PyDict_GetItemWithError(dict, key);
    if (!item || PyDict_SetItem(copy.get(), key, item) < 0) return nullptr;
  }
  return keys ? copy.release() : nullptr;
}

PyObject* copy_contents(PyObject* object) {
  if (PyDict_Check(object)) return copy_dict(object);
  if (PyList_Check(object) || is_deque(object)) return native_items(object).release();
  if (is_set(object)) return PySet_New(object);
  if (PyCell_Check(object)) {
    PyObject* contents = PyCell_GET(object);
    return contents ? PyTuple_Pack(1, contents) : PyTuple_New(0);
  }
  return nullptr;
}

}  // namespace

bool World::is_told_by_identity(PyObject* object) {
  if (guard::is_tensor(object)) return true;
  return Py_TYPE(object)->tp_hash == PyBaseObject_Type.tp_hash &&
         Py_TYPE(object)->tp_richcompare == PyBaseObject_Type.tp_richcompare;
}

PyTypeObject* native_type(const char* module_name, const char* name) {
  const interp::RaisedAside raised;  // it may be asked for anywhere, and is kept for good
  PyRef module = PyRef::steal(import_module(module_name));
  PyObject* type = module ? PyObject_GetAttrString(module.get(), name) : nullptr;
  if (!type) PyErr_Clear();
  return reinterpret_cast<PyTypeObject*>(type);
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

bool is_understood_container(PyObject* object) {
  return PyList_Check(object) || PyTuple_Check(object) || PyDict_Check(object) || is_set(object) ||
         is_deque(object);
}

World::World(RecorderHooks& hooks) : tree(std::make_unique<guard::SourceTree>()), hooks_(hooks) {}

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
    // Few objects are held by one alone, and only those can be dropped by the run.
    constexpr int kFew = 4;
    if (Py_REFCNT(object) <= kFew) held_by_few(known);
  }
  return *known;
}

namespace {

/// Does something known hold what is found there, as long as it is not written to?
bool is_held_by_parent(const Source& source) {
  switch (source.access) {
    case Access::instance_dict:
    case Access::dict_item:
    case Access::list_item:
    case Access::tuple_item:
    case Access::type_attr: return true;
    default: return false;
  }
}

}  // namespace

// What is in an object takes long to look through, and of a model's modules none goes.
void World::held_by_few(Known* known) {
  if (!can_drop_ && is_held_by_parent(*known->source))
    held_by_few_.push_back(known);
  else if (ends_in_python(known->object.get(), 2))
    mortal_.push_back(known);
}

void World::begin_dropping() {
  if (std::exchange(can_drop_, true)) return;
  for (Known* known : std::exchange(held_by_few_, {})) held_by_few(known);
}

PyObject* World::last_held() const {
  for (const Known* known : mortal_)
    if (known->object && Py_REFCNT(known->object.get()) == 1) return known->object.get();
  return nullptr;
}

void World::let_go(PyObject* object) {
  Known* known = find(object);
  std::erase(mortal_, known);
  std::erase(held_by_few_, known);
  known->object = PyRef();
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
  if (PyType_Check(object) || is_module(object)) return true;
  const bool from_constant = source->is_static;
  if (PyFunction_Check(object)) return from_constant;
  // A descriptor found on a class; a built-in function found in a module.
  if (source->access == Access::type_attr || source->access == Access::super_attr)
    return Py_TYPE(object)->tp_descr_get || PyCFunction_Check(object);
  if (PyCFunction_Check(object) || PyCapsule_CheckExact(object)) return from_constant;
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
  if (PyCFunction_Check(object) && !is_method) {
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
    follows_ |= hooks_.follows_sizes();
  }
}

bool World::dict_key(PyObject* dict, PyObject* key) {
  told_apart(key);
  if (PyUnicode_CheckExact(key) || is_plain_key(key)) return true;
  if (find(dict)) end_region("a dictionary from outside is read by a key that is an object");
  return false;
}

/// Which method it is, and what it is bound to, which every call reads.
void World::read_method(PyObject* method, Source* source) {
  static PyObject* const self = PyUnicode_InternFromString("__self__");
  if (PyCFunction_Check(method)) {
    auto* builtin = reinterpret_cast<PyCFunctionObject*>(method);
    source->assume(Check::method, nullptr, reinterpret_cast<Py_ssize_t>(builtin->m_ml));
    field(method, offsetof(PyCFunctionObject, m_self), self);
    return;
  }
  static PyObject* const name = PyUnicode_InternFromString("descriptor");
  auto* descriptor = reinterpret_cast<PyObject*>(reinterpret_cast<WrapperObject*>(method)->descr);
  tree->child(source, Access::field, name, offsetof(WrapperObject, descr))->assume(Check::is, descriptor);
  pin(descriptor);
  field(method, offsetof(WrapperObject, self), self);
}

PyObject* World::dict_get(PyObject* dict, PyObject* key) {
  Read& read = last_read(dict, key);
  __builtin_prefetch(&read);  // operators in between leave nothing of ours in the cache
  if (!dict_key(dict, key)) return nullptr;
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (!value && PyErr_Occurred()) return nullptr;
  if (read.where == dict && read.name == key && read.there == value) return read.given;
  Known* known = find(dict);
  if (!known) return value;
  if (known->keys && PyDict_Contains(known->keys.get(), key) == 1) return value;
  if (known->before && PyDict_GetItemWithError(known->before.get(), key) != value) return value;
  if (!is_key(key)) {
    Known* object = find(key);
    if (!object) return value;  // made by the run: no dict from outside has it
    object->source->assume(Check::is, key);
  }
  PyRef name = canonical_key(key);
  PyObject* given = nullptr;
  if (value)
    given = found(value, tree->child(known->source, Access::dict_item, name.get()));
  else
    known->source->assume(Check::missing, name.get());
  // Of numbers each read counts by itself.
  if (PyUnicode_CheckExact(name.get()) && !(value && can_be_followed(value)))
    last_read(dict, name.get()) = {dict, name.get(), 0, value, given};
  return given;
}

PyObject* World::type_attr(PyTypeObject* type, PyObject* name) {
  PyObject* value = _PyType_Lookup(type, name);
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    // Static types cannot change; what they hold is as good as a constant.
    if (value && !guard::is_leaf(value)) pin(value);
    return value;
  }
  Read& read = last_read(type, name);
  const bool numbered = type->tp_version_tag && PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
  if (numbered && read.where == type && read.name == name && read.version == type->tp_version_tag)
    return value;
  Source* owner = source_for(reinterpret_cast<PyObject*>(type));
  Source* place = tree->child(owner, Access::type_attr, name);
  if (value && is_number(value)) return found(value, place);  // a class may count what it made
  if (value)
    reached(value, place);
  else
    owner->assume(Check::missing, name);
  if (numbered) read = {type, name, type->tp_version_tag, value, value};
  return value;
}

void World::note_lookup(PyTypeObject* type) {
  if (type == last_noted_ || !interp::is_python_class(type)) return;
  last_noted_ = type;
  Known& known = pin(reinterpret_cast<PyObject*>(type));
  if (std::exchange(known.noted, true)) return;
  type_attr(type, interp::names_of.getattribute_);
  type_attr(type, interp::names_of.getattr_);
}

void World::note_bases(PyTypeObject* type) {
  if (!interp::is_python_class(type)) return;
  static PyObject* const name = PyUnicode_InternFromString("__mro__");
  read_whole(field(reinterpret_cast<PyObject*>(type), offsetof(PyTypeObject, tp_mro), name));
}

PyObject* World::super_attr(PyTypeObject* type, PyTypeObject* start, PyObject* name) {
  Source* owner = source_for(reinterpret_cast<PyObject*>(type));
  Source* place = tree->child(owner, Access::super_attr, name, 0, reinterpret_cast<PyObject*>(start));
  PyObject* found = place->read(reinterpret_cast<PyObject*>(type));
  if (found)
    reached(found, place);
  else
    place->assume(Check::unbound);
  return found;
}

PyObject* World::instance_dict(PyObject* object) {
  PyObject** slot = guard::instance_dict_slot(object);
  if (!slot || !*slot) return nullptr;
  if (users_code_shows) note_reading(object);
  Source* owner = source_for(object);
  if (owner && !find(*slot)) know(*slot, tree->child(owner, Access::instance_dict));
  return *slot;
}

namespace {

/// sequence[index] of a list that was only appended to, counted from the end: an item that the run put there.
bool is_appended(PyObject* sequence, const Known& known, Py_ssize_t index) {
  PyObject* before = known.before.get();
  if (!PyList_Check(sequence) || !PyList_Check(before) || index >= 0) return false;
  const Py_ssize_t length = PyList_GET_SIZE(before);
  if (-index > PyList_GET_SIZE(sequence) - length) return false;
  for (Py_ssize_t i = 0; i < length; ++i)
    if (PyList_GET_ITEM(before, i) != PyList_GET_ITEM(sequence, i)) return false;
  return true;
}

}  // namespace

PyObject* World::sequence_item(PyObject* sequence, Py_ssize_t index) {
  Py_ssize_t size = Py_SIZE(sequence);
  Known* known = find(sequence);
  bool list = PyList_Check(sequence);
  if (known && known->before) {
    if (!is_appended(sequence, *known, index)) read_whole(sequence);
    known = nullptr;
  }
  if (known && (index < 0 || index >= size)) read_length(sequence);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return nullptr;
  PyObject* item = list ? PyList_GET_ITEM(sequence, index) : PyTuple_GET_ITEM(sequence, index);
  if (!known) return item;
  return found(item,
               tree->child(known->source, list ? Access::list_item : Access::tuple_item, nullptr, index));
}

PyObject* World::cell_get(PyObject* cell) {
  PyObject* value = PyCell_GET(cell);
  Known* known = find(cell);
  if (!known) return value;
  if (known->before) return value;
  Source* place = tree->child(known->source, Access::cell);
  if (value) return found(value, place);
  place->assume(Check::unbound);
  return nullptr;
}

PyObject* World::field(PyObject* object, Py_ssize_t offset, PyObject* name) {
  PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
  if (Source* place = field_place(object, offset, name))
    value ? reached(value, place) : place->assume(Check::unbound);
  return value;
}

PyObject* World::slot(PyObject* object, Py_ssize_t offset, PyObject* name) {
  PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
  if (Source* place = field_place(object, offset, name)) {
    if (value) return found(value, place);
    place->assume(Check::unbound);
  }
  return value;
}

/// Null: nothing is to be guarded there.
Source* World::field_place(PyObject* object, Py_ssize_t offset, PyObject* name) {
  Source* owner = source_for(object);
  if (!owner) return nullptr;
  for (const WrittenField& written : written_fields)
    if (written.object.get() == object && written.offset == offset) return nullptr;
  return tree->child(owner, Access::field, name, offset);
}

PyObject* World::tensor_grad(PyObject* tensor) {
  PyObject* value = guard::tensor_grad(tensor);
  Known* known = find(tensor);
  if (!known) return value;
  for (const WrittenGrad& written : written_grads)
    if (written.tensor.get() == tensor) return value;
  Source* place = tree->child(known->source, Access::tensor_grad);
  if (value)
    reached(value, place);
  else
    place->assume(Check::unbound);
  return value;
}

PyObject* World::context_value(PyObject* variable) {
  PyObject* value = guard::context_value(variable);
  Known* known = find(variable);
  if (!known) return value;
  for (const WrittenContext& written : written_context)
    if (written.variable.get() == variable && !written.restored) return value;
  Source* place = tree->child(known->source, Access::context_var);
  if (value)
    reached(value, place);
  else
    place->assume(Check::unbound);
  return value;
}

void World::imported(PyObject* module) {
  PyObject* modules = PyImport_GetModuleDict();
  pin(modules);
  PyObject* raised = module ? nullptr : interp::take_raised();
  if (PyRef name =
          PyRef::steal(PyObject_GetAttrString(module ? module : raised, module ? "__name__" : "name")))
    if (PyUnicode_Check(name.get()) && PyDict_GetItemWithError(modules, name.get()) == module)
      dict_get(modules, name.get());
  interp::forget_error();
  if (raised) interp::set_raised(raised);
}

namespace {

Py_ssize_t native_length(PyObject* container) {
  if (PyDict_Check(container)) return PyDict_GET_SIZE(container);
  return is_set(container) ? PySet_GET_SIZE(container) : Py_SIZE(container);
}

}  // namespace

void World::read_length(PyObject* object) {
  Known* known = find(object);
  if (!known) return;
  PyObject* contents = known->before ? known->before.get() : object;
  if (known->keys) {  // which of those written were there before
    guard_keys(contents, *known->source);
    return;
  }
  if (known->source->access == Access::constant && PyTuple_Check(object)) return;
  known->source->assume(Check::length, nullptr, native_length(contents));
}

/// Which keys or elements there are, in order. The keys as a tuple; null: they cannot be guarded.
PyRef World::guard_keys(PyObject* contents, Source& source) {
  // An OrderedDict's order is its own; the copy of a written one was made in dict order, as is its guard.
  const PyRef list = native_items(contents);
  PyRef keys = PyRef::steal(list ? PyList_AsTuple(list.get()) : nullptr);
  if (!keys) return PyErr_Clear(), distrust("a container's keys cannot be listed"), PyRef();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); ++i)
    if (!is_key(PyTuple_GET_ITEM(keys.get(), i)))
      return end_region("a container from outside that has objects as keys is read"), PyRef();
  source.assume(Check::keys, keys.get());
  return keys;
}

void World::guard_whole(PyObject* contents, Known& known) {
  Source* source = known.source;
  if (PyDict_Check(contents) || is_set(contents)) {
    const PyRef keys = guard_keys(contents, *source);
    for (Py_ssize_t i = 0; keys && PyDict_Check(contents) && i < PyTuple_GET_SIZE(keys.get()); ++i) {
      PyRef key = canonical_key(PyTuple_GET_ITEM(keys.get(), i));
      PyObject* value = PyDict_GetItemWithError(contents, key.get());
      if (value) reached(value, tree->child(source, Access::dict_item, key.get()));
    }
    return;
  }
  const Py_ssize_t size = Py_SIZE(contents);
  source->assume(Check::length, nullptr, size);
  Access step = PyTuple_Check(contents) ? Access::tuple_item : Access::list_item;
  if (is_deque(known.object.get())) step = Access::deque_item;
  const PyRef items = is_sequence(contents) ? PyRef::share(contents) : native_items(contents);
  for (Py_ssize_t i = 0; items && i < size; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    Source* place = tree->child(source, step, nullptr, i);
    const auto own = leaves_.find(place);
    if (own == leaves_.end() || own->second != item) reached(item, place);
  }
}

void World::read_whole(PyObject* object) {
  Known* known = find(object);
  if (!known || known->read_whole || !is_understood_container(object)) return;
  known->read_whole = true;
  PyRef contents = PyRef::share(known->before ? known->before.get() : object);
  guard_whole(contents.get(), *known);
}

void World::read_deep(PyObject* object, int depth) {
  Depths read;
  read_deep(object, depth, read);
}

void World::read_deep(PyObject* object, int depth, Depths& read) {
  if (guard::is_leaf(object) || guard::is_tensor(object) || depth == 0) return;
  if (PyDictItems_Check(object) || PyDictValues_Check(object))
    return read_deep(reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict),
                     depth, read);
  if (!is_understood_container(object)) return;
  if (int& before = read[object]; before >= depth)
    return;
  else
    before = depth;
  read_whole(object);
  if (PyDict_Check(object)) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) read_deep(value, depth - 1, read);
  } else if (PyRef items = is_sequence(object) ? PyRef::share(object) : native_items(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(items.get()); ++i)
      read_deep(PySequence_Fast_GET_ITEM(items.get(), i), depth - 1, read);
  } else {
    PyErr_Clear();
  }
}

void World::note_function(PyObject* object) {
  Known* known = find(object);
  if (!known || known->noted) return;
  known->noted = true;
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  auto part = [&](Py_ssize_t offset, const char* name) {
    PyRef text = PyRef::steal(PyUnicode_InternFromString(name));
    return field(object, offset, text.get());
  };
  Source* source = known->source;
  part(offsetof(PyFunctionObject, func_code), "__code__");
  if (source->access != Access::constant) {
    PyRef text = PyRef::steal(PyUnicode_InternFromString("__globals__"));
    tree->child(source, Access::field, text.get(), offsetof(PyFunctionObject, func_globals))
        ->assume(Check::is, function->func_globals);
  }
  pin(function->func_globals);
  if (PyObject* defaults = part(offsetof(PyFunctionObject, func_defaults), "__defaults__"))
    read_whole(defaults);
  if (PyObject* keywords = part(offsetof(PyFunctionObject, func_kwdefaults), "__kwdefaults__"))
    read_whole(keywords);
  if (function->func_closure && PyTuple_GET_SIZE(function->func_closure)) {
    if (source->access == Access::constant) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(function->func_closure); ++i)
        pin(PyTuple_GET_ITEM(function->func_closure, i));
    } else {
      read_whole(part(offsetof(PyFunctionObject, func_closure), "__closure__"));
    }
  }
}

void World::compared(PyObject* a, PyObject* b) {
  if (a == b || guard::is_leaf(a) || guard::is_leaf(b)) return;
  if (PyCFunction_Check(a) && PyCFunction_Check(b) && PyCFunction_GET_SELF(a) && PyCFunction_GET_SELF(b))
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
  if (PyTuple_CheckExact(object))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) told_apart(PyTuple_GET_ITEM(object, i));
  else if (!is_told_by_identity(object))
    use(object);
  else if (find(object) && !is_key(object))
    identified(object, nullptr);
}

void World::keep_apart() {
  guard::Apart told;
  for (PyObject* object : identified_) told.each.push_back(find(object)->source);
  if (told.each.size() > 1) tree->apart.push_back(std::move(told));
  if (written.empty() && written_fields.empty() && written_grads.empty()) return;
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
  std::unordered_set<const Known*> writes;
  auto add = [&](PyObject* object) {
    Known* known = find(object);
    if (known->object && known->source->access != Access::constant && writes.insert(known).second)
      sorts[sort_of(*known)].each.push_back(known->source);
  };
  for (PyObject* container : written) add(container);
  for (const WrittenField& field : written_fields) add(field.object.get());
  for (const WrittenGrad& grad : written_grads) add(grad.tensor.get());
  if (sorts.empty()) return;
  store_.for_each([&](const Known& known) {
    if (!known.object || known.source->access == Access::constant || writes.count(&known)) return;
    if (auto at = sorts.find(sort_of(known)); at != sorts.end()) at->second.others.push_back(known.source);
  });
  for (auto& [sort, apart] : sorts)
    if (apart.each.size() + apart.others.size() > 1) tree->apart.push_back(std::move(apart));
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

/// The numbers in a list from outside that differ between calls get an address of their own: once the list is
/// written, a number's place does not tell any more where it came from.
void World::own_numbers_of(PyObject* list) {
  const Known* known = PyList_CheckExact(list) && hooks_.follows_numbers() ? find(list) : nullptr;
  if (!known || known->before || known->read_whole) return;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* item = PyList_GET_ITEM(list, i);
    if (!can_be_followed(item)) continue;
    PyObject* own = found(item, tree->child(known->source, Access::list_item, nullptr, i));
    if (own != item) PyList_SetItem(list, i, Py_NewRef(own));
  }
}

/// A container from outside, with what was in it before the run wrote to it; null: it is not one.
Known* World::copied(PyObject* container) {
  Known* known = find(container);
  if (known) note_showing(known->source);
  if (!known || known->before) return known;
  begin_dropping();
  if (is_gone_through(container))
    return end_region("something is written to that an iterator from outside goes through"), nullptr;
  known->before = PyRef::steal(copy_contents(container));
  if (PyODict_Check(container) || is_deque(container))
    known->noticed_writes = guard::noticed_writes(container);
  if (known->before) return written.push_back(container), known;
  PyErr_Clear();
  distrust(std::string("a ") + Py_TYPE(container)->tp_name + " from outside is written");
  return nullptr;
}

void World::about_to_write(PyObject* container, bool appends) {
  if (!appends) own_numbers_of(container);
  if (!copied(container) || PyCell_Check(container) || (appends && PyList_Check(container))) return;
  read_whole(container);
  if (!PyDict_Check(container)) return;
  // Any of them may be another one, or elsewhere, afterwards.
  PyRef keys = PyRef::steal(PyDict_Keys(container));
  for (Py_ssize_t i = 0; keys && i < PyList_GET_SIZE(keys.get()); ++i)
    about_to_write_item(container, PyList_GET_ITEM(keys.get(), i), true);
}

void World::about_to_write_item(PyObject* dict, PyObject* key, bool removes) {
  told_apart(key);
  Known* known = copied(dict);
  if (!known) return;
  if (!known->keys) known->keys = PyRef::steal(PyDict_New());
  PyObject* noted = PyDict_GetItemWithError(known->keys.get(), key);
  const bool comes_last = noted && !removes && PyDict_Contains(dict, key) == 0;
  if (comes_last) PyDict_DelItem(known->keys.get(), key);
  if (!noted || comes_last || removes)
    PyDict_SetItem(known->keys.get(), key, removes || comes_last ? Py_True : Py_False);
  PyErr_Clear();  // a key that cannot be hashed: the write raises
}

void World::about_to_update(PyObject* dict, PyObject* mapping) {
  if (!PyDict_CheckExact(mapping) || !find(dict)) return about_to_write(dict);
  if (!has_plain_keys(mapping))
    return end_region("a dictionary from outside is written by a key that is an object");
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(mapping, &position, &key, &value)) about_to_write_item(dict, key);
}

namespace {

/// The same keys in the same order, the same items: by identity.
bool are_same_items(PyObject* a, PyObject* b) {
  if (PyDict_Check(a)) {
    Py_ssize_t at_a = 0, at_b = 0;
    PyObject *key_a, *item_a, *key_b, *item_b;
    while (PyDict_Next(a, &at_a, &key_a, &item_a))
      if (!PyDict_Next(b, &at_b, &key_b, &item_b) || key_a != key_b || item_a != item_b) return false;
    return PyDict_GET_SIZE(a) == PyDict_GET_SIZE(b);
  }
  PyRef all_a = PyRef::steal(PySequence_Tuple(a)), all_b = PyRef::steal(PySequence_Tuple(b));
  if (!all_a || !all_b) return PyErr_Clear(), false;
  const Py_ssize_t size = PyTuple_GET_SIZE(all_a.get());
  if (PyTuple_GET_SIZE(all_b.get()) != size) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (PyTuple_GET_ITEM(all_a.get(), i) != PyTuple_GET_ITEM(all_b.get(), i)) return false;
  return true;
}

}  // namespace

bool World::is_as_before(PyObject* container) const {
  Known* const* known = known_.find(container);
  if (!known || PyODict_Check(container)) return false;  // move_to_end() leaves no trace in the dict below
  PyRef now = PyRef::steal(copy_contents(container));
  if (!now) return PyErr_Clear(), false;
  return are_same_items(now.get(), (*known)->before.get());
}

std::string World::trace() const {
  if (!unsound.empty()) return unsound;
  for (const guard::NumberStep& step : numbers.steps)
    if (step.phase == guard::Phase::early) return "it drew a random number";
  for (PyObject* each : written)
    if (!is_as_before(each)) return std::string("it wrote to a ") + Py_TYPE(each)->tp_name;
  for (const WrittenField& each : written_fields)
    return std::string("it wrote to a slot of a ") + Py_TYPE(each.object.get())->tp_name;
  if (!written_grads.empty()) return "it set a gradient";
  for (const WrittenContext& each : written_context)
    if (!each.restored && guard::context_value(each.variable.get()) != each.before.get())
      return "it set a context variable";
  if (!calls.empty()) return "it printed or logged";
  if (!resumed.empty()) return "it took something from a generator";
  if (!advanced.empty()) return "it took something from an iterator";
  return locks.empty() ? "" : "it took a lock";
}

void World::about_to_set_context(PyObject* variable) {
  PyObject* now = guard::context_value(variable);
  for (WrittenContext& written : written_context)
    if (written.variable.get() == variable) {
      written.set_to_what_it_was |= !written.restored && now == written.before.get();
      written.restored = false;
      return;
    }
  written_context.push_back({PyRef::share(variable), PyRef::share(now)});
}

int World::set_grad(PyObject* tensor, PyObject* value) {
  begin_dropping();
  if (guard::set_grad(tensor, value) < 0) return -1;
  for (WrittenGrad& written : written_grads)
    if (written.tensor.get() == tensor) return written.value = PyRef::share(value), 0;
  written_grads.push_back({PyRef::share(tensor), PyRef::share(value)});
  return 0;
}

bool WrittenContext::gives_back_before(PyObject* old) const {
  return old == before.get() || std::string_view(Py_TYPE(old)->tp_name) == "Token.MISSING";
}

bool World::about_to_reset_context(PyObject* variable, PyObject* token) {
  if (find(token)) return false;
  PyRef old = PyRef::steal(PyObject_GetAttrString(token, "old_value"));
  if (!old) return PyErr_Clear(), false;
  for (WrittenContext& written : written_context) {
    if (written.variable.get() != variable) continue;
    const bool first = written.gives_back_before(old.get());
    if (first && written.set_to_what_it_was) return false;
    written.restored = first;
    return true;
  }
  return false;
}

void World::about_to_write_field(PyObject* object, Py_ssize_t offset) {
  const Known* known = find(object);
  if (!known) return;
  note_showing(known->source);
  begin_dropping();
  for (const WrittenField& written : written_fields)
    if (written.object.get() == object && written.offset == offset) return;
  written_fields.push_back({PyRef::share(object), offset});
}

}  // namespace bolt::observe

// observe/reads/outside.cpp
// An object from outside and what is asked of it (an attribute, a key, an item, a slot) -> what is there,
// with its guard: World's reads, which everything else that looks at something from outside comes down to.
#include "observe/world.h"

#include <cstddef>
#include <utility>

#include "observe/calls/cfunctions.h"
#include "observe/calls/controls.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

/// Changes with everything that is written to a dict. 0: it cannot be told.
uint64_t dict_version(PyObject* dict) {
#if BOLT_PY312
  return 0;
#else
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#endif
}

}  // namespace

PyRef canonical_key(PyObject* key) {
  PyObject* owned = Py_NewRef(key);
  if (PyUnicode_CheckExact(owned) && !PyUnicode_CHECK_INTERNED(owned)) PyUnicode_InternInPlace(&owned);
  return PyRef::steal(owned);
}

PyObject* World::reached_if_bound(PyObject* object, Source* source) {
  object ? reached(object, source) : source->assume(Check::unbound);
  return object;
}

bool World::dict_key(PyObject* dict, PyObject* key) {
  followed_keys.tell_from_keys(dict, key);
  if (PyUnicode_CheckExact(key) || is_plain_key(key)) return true;
  if (find(dict)) end_region(Why::key_read);
  return false;
}

/// Which method it is, and what it is bound to, which every call reads.
void World::read_method(PyObject* method, Source* source) {
  static PyObject* const self = PyUnicode_InternFromString("__self__");
  if (PyCFunction_Check(method)) {
    auto* builtin = reinterpret_cast<PyCFunctionObject*>(method);
    // The class's own descriptor, where it is one's, says which it is in another process, too.
    PyTypeObject* owner = builtin->m_self ? Py_TYPE(builtin->m_self) : nullptr;
    PyRef named = PyRef::steal(PyUnicode_FromString(builtin->m_ml->ml_name));
    if (!named) PyErr_Clear();
    PyObject* found = owner && named ? _PyType_Lookup(owner, named.get()) : nullptr;
    const bool same = found && Py_IS_TYPE(found, &PyMethodDescr_Type) &&
                      reinterpret_cast<PyMethodDescrObject*>(found)->d_method == builtin->m_ml;
    source->assume(Check::method, same ? found : nullptr, reinterpret_cast<Py_ssize_t>(builtin->m_ml));
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
  // By an interned text, which is no text of ours that is followed.
  const bool again = read.where == dict && read.name == key && !followed_keys.any();
  if (again && read.version && read.version == dict_version(dict)) return read.given;
  const bool text = PyUnicode_CheckExact(key);
  if (PyObject* item = followed_.empty() ? nullptr : places.item_by_key(dict, key)) return item;
  if (!again && !(text && all_are_read()) && !dict_key(dict, key)) return nullptr;
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (!value && PyErr_Occurred()) return nullptr;
  if (again && read.there == value) return read.given;
  Known* known = find(dict);
  if (!known) return value;
  if (known->keys && PyDict_Contains(known->keys.get(), key) == 1) return value;
  if (known->window.cleared) return value;
  if (known->window.front && PyDict_Contains(known->before.get(), key) == 1)
    return read_whole(dict), value;  // it may be one of those that have gone
  if (!followed_.empty() && followed_keys.is_followed_key(key))
    return value;  // told from what was there: it is not
  if (known->before && PyDict_GetItemWithError(known->before.get(), key) != value) return value;
  if (!text && !is_key(key)) {
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
    last_read(dict, name.get()) = {dict, name.get(), dict_version(dict), value, given};
  return given;
}

PyObject* World::type_attr(PyTypeObject* type, PyObject* name) {
  PyObject* value = _PyType_Lookup(type, name);
  if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    // Static types cannot change; what they hold is as good as a constant.
    if (value && !guard::is_leaf(value)) pin(value);
    return value;
  }
  if (!writes.written_classes.empty() && writes.is_written(type, name)) return value;
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
  if (type == last_noted_ || !is_python_class(type)) return;
  last_noted_ = type;
  Known& known = pin(reinterpret_cast<PyObject*>(type));
  if (std::exchange(known.noted, true)) return;
  type_attr(type, names_of.getattribute_);
  type_attr(type, names_of.getattr_);
}

void World::note_bases(PyTypeObject* type) {
  if (!is_python_class(type)) return;
  static PyObject* const name = PyUnicode_InternFromString("__mro__");
  read_whole(field(reinterpret_cast<PyObject*>(type), offsetof(PyTypeObject, tp_mro), name));
}

PyObject* World::super_attr(PyTypeObject* type, PyTypeObject* start, PyObject* name) {
  for (const WrittenClass& written : writes.written_classes)
    if (PyUnicode_Compare(written.name.get(), name) == 0) return end_region(Why::super_of_class), nullptr;
  Source* owner = source_for(reinterpret_cast<PyObject*>(type));
  Source* place = tree->child(owner, Access::super_attr, name, 0, reinterpret_cast<PyObject*>(start));
  PyObject* found = place->read(reinterpret_cast<PyObject*>(type));
  return reached_if_bound(found, place);
}

PyObject* World::instance_dict(PyObject* object) {
  PyObject** slot = guard::instance_dict_slot(object);
  if (!slot || !*slot) return nullptr;
  if (users_code_shows) note_reading(object);
  Source* owner = source_for(object);
  if (owner && !find(*slot)) know(*slot, tree->child(owner, Access::instance_dict));
  return *slot;
}

PyObject* World::sequence_item(PyObject* sequence, Py_ssize_t index) {
  // What was read whole has a guard for each of its places.
  if (lengths.known_by_ends(sequence)) return lengths.item_at(sequence, index);
  const Py_ssize_t size = Py_SIZE(sequence);
  Known* known = find(sequence);
  const bool list = PyList_Check(sequence);
  if (known && !known->before && (index < 0 || index >= size)) read_length(sequence);
  if (index < 0) index += size;
  if (index < 0 || index >= size) return nullptr;
  PyObject* item = list ? PyList_GET_ITEM(sequence, index) : PyTuple_GET_ITEM(sequence, index);
  if (!known || known->before) return item;
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
  Source* place = field_place(object, offset, name);
  return place ? reached_if_bound(value, place) : value;
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
  for (const WrittenField& written : writes.written_fields)
    if (written.object.get() == object && written.offset == offset) return nullptr;
  return tree->child(owner, Access::field, name, offset);
}

PyObject* World::tensor_grad(PyObject* tensor) {
  PyObject* value = guard::tensor_grad(tensor);
  Known* known = find(tensor);
  if (!known) return value;
  if (writes.was_given(Effect::set_grad, tensor)) return value;
  Source* place = tree->child(known->source, Access::tensor_grad);
  return reached_if_bound(value, place);
}

PyObject* World::context_value(PyObject* variable) {
  PyObject* value = guard::context_value(variable);
  Known* known = find(variable);
  if (!known) return value;
  for (const WrittenContext& written : writes.written_context)
    if (written.variable.get() == variable && !written.restored) return value;
  Source* place = tree->child(known->source, Access::context_var);
  return reached_if_bound(value, place);
}

void World::imported(PyObject* module) {
  PyObject* modules = PyImport_GetModuleDict();
  pin(modules);
  PyObject* raised = module ? nullptr : take_raised();
  if (PyRef name =
          PyRef::steal(PyObject_GetAttrString(module ? module : raised, module ? "__name__" : "name")))
    if (PyUnicode_Check(name.get()) && PyDict_GetItemWithError(modules, name.get()) == module)
      dict_get(modules, name.get());
  forget_error();
  if (raised) set_raised(raised);
}

void World::read_length(PyObject* object) {
  if (const Known* made = lengths.made_of(object)) return read_length(made->of->object.get());
  Known* known = find(object);
  if (!known || known->window.cleared) return;
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
    if (!is_key(PyTuple_GET_ITEM(keys.get(), i))) return end_region(Why::keys_read), PyRef();
  source.assume(Check::keys, keys.get());
  return keys;
}

void World::guard_whole(PyObject* contents, Known& known) {
  Source* source = known.source;
  if (PyDict_Check(contents) || is_set(known.object.get())) {
    const PyRef keys = guard_keys(contents, *source);
    for (Py_ssize_t i = 0; keys && PyDict_Check(contents) && i < PyTuple_GET_SIZE(keys.get()); ++i) {
      PyRef key = canonical_key(PyTuple_GET_ITEM(keys.get(), i));
      PyObject* value = PyDict_GetItemWithError(contents, key.get());
      Source* place = tree->child(source, Access::dict_item, key.get());
      if (value && !is_own(value, place)) reached(value, place);
    }
    return;
  }
  const Py_ssize_t size = Py_SIZE(contents);
  source->assume(Check::length, nullptr, size);
  source->is_whole = true;
  Access step = PyTuple_Check(contents) ? Access::tuple_item : Access::list_item;
  if (is_deque(known.object.get())) step = Access::deque_item;
  const PyRef items = is_sequence(contents) ? PyRef::share(contents) : native_items(contents);
  for (Py_ssize_t i = 0; items && i < size; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    Source* place = tree->child(source, step, nullptr, i);
    if (!is_own(item, place)) reached(item, place);
  }
}

void World::read_whole(PyObject* object) {
  Known* known = lengths.known_by_ends(object);
  if (known && (known->of || original(object) != object)) return lengths.read_parts(*known);
  known = find(object);
  if (!known || !known->object || known->read_whole || known->window.cleared) return;  // or it was let go of
  if (!is_understood_container(object)) return;
  known->read_whole = true;
  followed_keys.use_positions(*known);
  PyRef contents = PyRef::share(known->before ? known->before.get() : object);
  guard_whole(contents.get(), *known);
}

// Objects of Python classes are read through their special methods, functions and classes are pinned.
bool is_opaque(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const bool holds = type->tp_iter || type->tp_iternext || type->tp_as_sequence || type->tp_as_mapping;
  const bool native = !is_heap_type(type) || (holds && !is_python_class(type));
  return native && !PyType_Check(object) && !is_module(object) && !PyFunction_Check(object) &&
         !PyCFunction_Check(object) && !type->tp_call && !type->tp_descr_get;
}

void World::read_deep(PyObject* object, int depth) {
  Depths read;
  const PyObject* opaque = nullptr;
  read_deep(object, depth, read, opaque);
  if (opaque) end_region({Why::read, Py_TYPE(opaque)->tp_name});
}

void World::read_deep(PyObject* object, int depth, Depths& read, const PyObject*& opaque) {
  lengths.read_if_open(object);
  if (guard::is_leaf(object) || guard::is_tensor(object) || depth == 0) return;
  if (PyDictItems_Check(object) || PyDictValues_Check(object))
    return read_deep(reinterpret_cast<PyObject*>(reinterpret_cast<_PyDictViewObject*>(object)->dv_dict),
                     depth, read, opaque);
  if (!is_understood_container(object)) {
    if (find(object) && is_opaque(object) && !PyDictViewSet_Check(object)) opaque = object;
    return;
  }
  if (int& before = read[object]; before >= depth)
    return;
  else
    before = depth;
  read_whole(object);
  if (PyDict_Check(object)) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value)) read_deep(value, depth - 1, read, opaque);
  } else if (PyRef items = is_sequence(object) ? PyRef::share(object) : native_items(object)) {
    for (Py_ssize_t i = 0; i < Py_SIZE(items.get()); ++i)
      read_deep(PySequence_Fast_GET_ITEM(items.get(), i), depth - 1, read, opaque);
  } else {
    PyErr_Clear();
  }
}

void World::note_function(PyObject* object) {
  Known* known = find(object);
  if (!known || known->noted) return;
  known->noted = true;
  auto* function = reinterpret_cast<PyFunctionObject*>(object);
  auto part = [&](Py_ssize_t offset, PyObject* name) { return field(object, offset, name); };
  Source* source = known->source;
  part(offsetof(PyFunctionObject, func_code), interned<"__code__">());
  if (source->access != Access::constant) {
    constexpr auto globals = static_cast<Py_ssize_t>(offsetof(PyFunctionObject, func_globals));
    tree->child(source, Access::field, interned<"__globals__">(), globals)
        ->assume(Check::is, function->func_globals);
  }
  pin(function->func_globals);
  if (PyObject* defaults = part(offsetof(PyFunctionObject, func_defaults), interned<"__defaults__">()))
    read_whole(defaults);
  if (PyObject* keywords = part(offsetof(PyFunctionObject, func_kwdefaults), interned<"__kwdefaults__">()))
    read_whole(keywords);
  if (function->func_closure && PyTuple_GET_SIZE(function->func_closure)) {
    if (source->access == Access::constant) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(function->func_closure); ++i)
        pin(PyTuple_GET_ITEM(function->func_closure, i));
    } else {
      read_whole(part(offsetof(PyFunctionObject, func_closure), interned<"__closure__">()));
    }
  }
}

void World::found_generator(PyObject* generator) {
  Known& known = *find(generator);
  auto is_it = [&](const auto& found) { return found.first.get() == generator; };
  if (known.source->access == Access::constant || std::ranges::any_of(generators, is_it)) return;
  PyObject* const device = _PyType_Lookup(Py_TYPE(generator), interned<"device">());
  const PyRef where = PyRef::steal(PyObject_GetAttr(generator, interned<"device">()));
  if (!device || !where) return PyErr_Clear(), distrust("a torch.Generator without a device");
  known.source->assume_answer(device, where.get());
  generators.emplace_back(PyRef::share(generator), tree->keep(known.source));
}

}  // namespace bolt::observe

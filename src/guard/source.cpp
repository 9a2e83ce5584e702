// guard/source.cpp
#include "guard/source.h"

#include "guard/leaf.h"
#include "guard/tensor_numbers.h"
#include "guard/tensors.h"
#include "python/compat.h"
#include "python/slots.h"
#include "support/pointer_map.h"

namespace bolt::guard {
namespace {

PyObject* borrowed(PyObject* fresh) {
  Py_XDECREF(fresh);
  if (!fresh) PyErr_Clear();
  return fresh;
}

/// A class in Python may have a `__getitem__` of its own.
PyObject* native_item(PyObject* sequence, Py_ssize_t index) {
  return class_of_c(Py_TYPE(sequence))->tp_as_sequence->sq_item(sequence, index);
}

PyObject* dict_item(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (!found) PyErr_Clear();
  return found;
}

PyObject* super_attr(PyObject* type, PyObject* start, PyObject* name) {
  PyObject* mro = reinterpret_cast<PyTypeObject*>(type)->tp_mro;
  bool after = false;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    PyObject* cls = PyTuple_GET_ITEM(mro, i);
    if (after) {
      PyObject* found = dict_item(type_dict(reinterpret_cast<PyTypeObject*>(cls)), name);
      if (found) return found;
    }
    after |= cls == start;
  }
  return nullptr;
}

std::string constant_name(PyObject* object) {
  if (PyDict_Check(object)) {
    PyObject* name = PyDict_GetItemString(object, "__name__");
    return name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : "<dict>";
  }
  if (is_module(object)) {
    const char* name = module_name(object);
    return name ? name : "<module>";
  }
  if (PyFunction_Check(object))
    return PyUnicode_AsUTF8(reinterpret_cast<PyFunctionObject*>(object)->func_qualname);
  return short_repr(object);
}

std::string text_of(PyObject* key) { return PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : short_repr(key); }

/// nn.Module keeps these three dicts; their items are attributes to its user.
bool is_module_dict(const Source* source) {
  if (source->access != Access::dict_item || source->parent->access != Access::instance_dict) return false;
  std::string name = text_of(source->key.get());
  return name == "_modules" || name == "_parameters" || name == "_buffers";
}

std::string item_text(const Source& source, const std::vector<std::string>& names) {
  const Source* parent = source.parent;
  if (parent->access == Access::instance_dict)
    return parent->parent->str(names) + "." + text_of(source.key.get());
  if (parent->access == Access::constant) return parent->str(names) + "." + text_of(source.key.get());
  if (is_module_dict(parent)) {
    std::string name = text_of(source.key.get()), owner = parent->parent->parent->str(names);
    bool number = !name.empty() && name[0] >= '0' && name[0] <= '9';
    return number ? owner + "[" + name + "]" : owner + "." + name;
  }
  return parent->str(names) + "[" + short_repr(source.key.get()) + "]";
}

/// Of a number in a tensor: "float(self.scale)", "self.strides.flatten()[2].item()".
std::string number_text(const Source& source, const std::vector<std::string>& names) {
  std::string text = source.parent->str(names);
  if (source.index != kOnlyElement) text += ".flatten()[" + std::to_string(source.index) + "]";
  if (!source.key) return text + ".item()";
  return std::string(reinterpret_cast<PyTypeObject*>(source.key.get())->tp_name) + "(" + text + ")";
}

}  // namespace

PyObject* context_value(PyObject* variable) {
  PyObject* value = nullptr;
  if (!PyContextVar_CheckExact(variable) || PyContextVar_Get(variable, nullptr, &value) < 0) PyErr_Clear();
  Py_XDECREF(value);  // the context or the variable's default keeps it
  return value;
}

bool Source::has(Check check) const {
  for (const Assumption& assumption : assumptions)
    if (assumption.check == check) return true;
  return false;
}

bool Source::reads_dict() const {
  return !children().empty() || has(Check::keys) || has(Check::missing) || has(Check::length);
}

void Source::assume(Check check, PyObject* value, Py_ssize_t number, Source* other) {
  for (const Assumption& known : assumptions)
    if (known.check == check && known.value.get() == value && known.number == number && known.other == other)
      return;
  assumptions.push_back({check, PyRef::share(value), other, number});
}

namespace {

/// A function's annotations are made into a dict when somebody first asks for them, as the recorded run did.
/// In another process (session/saved.h) nobody may have asked yet.
void make_annotations(PyObject* function) {
  PyObject* annotations = reinterpret_cast<PyFunctionObject*>(function)->func_annotations;
  if (annotations && PyDict_Check(annotations)) return;
  if (!PyRef::steal(PyObject_GetAttrString(function, "__annotations__"))) PyErr_Clear();
}

/// Arguments are the same objects or equal leaves: a class's own __eq__ is not asked.
bool same_question(PyObject* a, PyObject* b) {
  if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i) {
    PyObject *x = PyTuple_GET_ITEM(a, i), *y = PyTuple_GET_ITEM(b, i);
    if (x != y && !(is_leaf(x) && is_leaf(y) && same_leaf(x, y))) return false;
  }
  return true;
}

}  // namespace

void Source::assume_answer(PyObject* how, PyObject* answer) {
  for (const Assumption& known : assumptions) {
    if (known.check != Check::gives) continue;
    PyObject* question = PyTuple_GET_ITEM(known.value.get(), 0);
    if (how == question || (PyTuple_Check(how) && PyTuple_Check(question) && same_question(how, question)))
      return;
  }
  PyRef both = PyRef::steal(PyTuple_Pack(2, how, answer));
  assume(Check::gives, both.get());
}

PyObject** list_place(PyObject* list, Py_ssize_t index) {
  const Py_ssize_t size = PyList_GET_SIZE(list), at = index < 0 ? index + size : index;
  return at >= 0 && at < size ? &reinterpret_cast<PyListObject*>(list)->ob_item[at] : nullptr;
}

PyObject* Source::read(PyObject* object) const {
  switch (access) {
    case Access::root: return object;
    case Access::constant: return key.get();
    case Access::instance_dict: {
      PyObject** slot = instance_dict_slot(object);
      return slot ? *slot : nullptr;
    }
    case Access::dict_item: return PyDict_Check(object) ? dict_item(object, key.get()) : nullptr;
    case Access::list_item: {
      PyObject** item = PyList_Check(object) ? list_place(object, index) : nullptr;
      return item ? *item : nullptr;
    }
    case Access::tuple_item: {
      const Py_ssize_t at = index < 0 && PyTuple_Check(object) ? index + PyTuple_GET_SIZE(object) : index;
      const bool there = PyTuple_Check(object) && at >= 0 && at < PyTuple_GET_SIZE(object);
      return there ? PyTuple_GET_ITEM(object, at) : nullptr;
    }
    case Access::deque_item: {
      const Py_ssize_t at = index < 0 ? index + Py_SIZE(object) : index;
      return at < 0 ? nullptr : borrowed(native_item(object, at));
    }
    case Access::cell: return PyCell_Check(object) ? PyCell_GET(object) : nullptr;
    case Access::field:
      if (index == offsetof(PyFunctionObject, func_annotations) && PyFunction_Check(object))
        make_annotations(object);
      return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + index);
    case Access::type_attr: return _PyType_Lookup(reinterpret_cast<PyTypeObject*>(object), key.get());
    case Access::super_attr: return super_attr(object, start, key.get());
    case Access::tensor_grad: return tensor_grad(object);
    case Access::context_var: return context_value(object);
    case Access::list_tensor:
    case Access::array_tensor:
    case Access::tensor_number: return nullptr;  // nobody would hold it
    case Access::chosen: return object;
  }
  return nullptr;
}

std::string Source::str(const std::vector<std::string>& names) const {
  switch (access) {
    case Access::root: {
      size_t at = static_cast<size_t>(index);
      return at < names.size() && !names[at].empty() ? names[at] : "argument " + std::to_string(index);
    }
    case Access::constant: return constant_name(key.get());
    case Access::instance_dict: return parent->str(names) + ".__dict__";
    case Access::dict_item: return item_text(*this, names);
    case Access::list_item:
    case Access::tuple_item:
    case Access::deque_item: return parent->str(names) + "[" + std::to_string(index) + "]";
    case Access::cell: return parent->str(names) + ".cell_contents";
    case Access::field:
    case Access::type_attr: return parent->str(names) + "." + text_of(key.get());
    case Access::super_attr: return "super(" + parent->str(names) + ")." + text_of(key.get());
    case Access::tensor_grad: return parent->str(names) + ".grad";
    case Access::context_var: return parent->str(names) + ".get()";
    case Access::list_tensor: return "torch.tensor(" + parent->str(names) + ")";
    case Access::array_tensor: return "torch.from_numpy(" + parent->str(names) + ")";
    case Access::tensor_number: return number_text(*this, names);
    case Access::chosen: return text_of(key.get());
  }
  return {};
}

Source* SourceTree::intern(const Id& id) {
  size_t mixed = hash_address(id.parent) + hash_address(id.key);
  mixed = mixed * 31 + static_cast<size_t>(id.index);
  mixed = mixed * 31 + hash_address(id.start) + static_cast<size_t>(id.access);
  const auto hash = static_cast<uint32_t>(mixed);
  if (2 * all_.size() >= table_.size()) grow();
  const size_t mask = table_.size() - 1;
  size_t at = hash & mask;
  for (; table_[at].source != kFree; at = (at + 1) & mask) {
    if (table_[at].hash != hash) continue;
    Source* known = all_[table_[at].source];
    if (known->parent == id.parent && known->key.get() == id.key && known->index == id.index &&
        known->start == id.start && known->access == id.access)
      return known;
  }
  Source& source = store_.emplace_back();
  source.parent = id.parent;
  source.access = id.access;
  source.key = PyRef::share(id.key);
  source.index = id.index;
  source.start = id.start;
  source.is_static = id.parent ? id.parent->is_static : id.access == Access::constant;
  if (id.parent)
    id.parent->add_child(&source);
  else
    tops_.push_back(&source);
  source.number = static_cast<uint32_t>(all_.size());
  table_[at] = {hash, source.number};
  all_.push_back(&source);
  return &source;
}

void SourceTree::grow() {
  std::vector<Entry> larger(table_.empty() ? 512 : 2 * table_.size());
  for (const Entry& entry : table_) {
    if (entry.source == kFree) continue;
    size_t at = entry.hash & (larger.size() - 1);
    while (larger[at].source != kFree) at = (at + 1) & (larger.size() - 1);
    larger[at] = entry;
  }
  table_ = std::move(larger);
}

Source* SourceTree::root(Py_ssize_t index) {
  return intern({nullptr, nullptr, index, nullptr, Access::root});
}

Source* SourceTree::constant(PyObject* object) {
  return intern({nullptr, object, 0, nullptr, Access::constant});
}

Source* SourceTree::chosen(int step, PyObject* place, PyObject* key) {
  constant(key);  // keeps it alive
  return intern({nullptr, place, step, key, Access::chosen});
}

Source* SourceTree::child(Source* parent, Access access, PyObject* key, Py_ssize_t index, PyObject* start) {
  if (start) constant(start);  // keeps it alive
  return intern({parent, key, index, start, access});
}

int SourceTree::keep(Source* source) {
  if (source->reg < 0) source->reg = registers_++;
  return source->reg;
}

PyObject** instance_dict_slot(PyObject* object) {
  PyObject** slot = _PyObject_GetDictPtr(object);
  if (!slot) return nullptr;
  if (!*slot && !PyType_Check(object)) {
    PyObject* made = PyObject_GenericGetDict(object, nullptr);
    if (!made) PyErr_Clear();
    Py_XDECREF(made);
    slot = _PyObject_GetDictPtr(object);
  }
  return slot;
}

}  // namespace bolt::guard

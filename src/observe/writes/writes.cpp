// observe/writes/writes.cpp
#include "observe/writes/writes.h"

#include <algorithm>
#include <ranges>

#include "guard/assumption.h"
#include "guard/iterators.h"
#include "observe/world.h"
#include "python/compat.h"

namespace bolt::observe {
namespace {

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
  if (PyList_Check(object) || is_deque(object) || is_set(object)) return native_items(object).release();
  if (PyCell_Check(object)) {
    PyObject* contents = PyCell_GET(object);
    return contents ? PyTuple_Pack(1, contents) : PyTuple_New(0);
  }
  return nullptr;
}

}  // namespace

/// How many items a deque holds decides what becomes of it when one is put there.
static void note_longest(Known& known) {
  static PyObject* const maxlen =
      PyDict_GetItemString(type_dict(native_type("collections", "deque")), "maxlen");
  const PyRef most = PyRef::steal(guard::ask(known.object.get(), maxlen));
  if (most) known.source->assume_answer(maxlen, most.get());
}

Known* Writes::copied(PyObject* container) {
  if (world_.lengths.made_of(container)) return world_.lengths.known_by_ends(container);
  Known* known = world_.find(container);
  if (known) note_showing(known->source);
  if (!known || known->before) return known;
  if (world_.is_gone_through(container)) return world_.end_region(Why::iterated_written), nullptr;
  known->before = PyRef::steal(copy_contents(container));
  if (PyODict_Check(container) || is_deque(container))
    known->noticed_writes = guard::noticed_writes(container);
  if (is_deque(container)) note_longest(*known);
  if (known->before) return written.push_back(container), world_.goodbyes.note_copy(*known), known;
  PyErr_Clear();
  world_.distrust(std::string("a ") + Py_TYPE(container)->tp_name + " from outside is written");
  return nullptr;
}

void Writes::about_to_write(PyObject* container, bool appends) {
  const bool grows =
      appends && (PyList_Check(container) || (is_deque(container) && guard::longest(container) < 0));
  if (!grows) world_.own_numbers_of(container);  // what is only added to is not read
  Known* known = copied(container);
  if (!known || grows) return;
  if (known->of) return world_.read_whole(container);
  if (!PyDict_Check(container)) world_.goodbyes.may_lose(*known);
  if (PyCell_Check(container)) return;
  world_.read_whole(container);
  if (!PyDict_Check(container)) return;
  // After the write any of the keys may have another item, or stand at another place.
  PyRef keys = PyRef::steal(PyDict_Keys(container));
  for (Py_ssize_t i = 0; keys && i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    if (known->keys && PyDict_Contains(known->keys.get(), key) ==
                           1)  // the keys are noted once more, now in the order of the dict
      PyDict_DelItem(known->keys.get(), key);
    about_to_write_item(container, key, true);
  }
}

PyObject* mark_of(Written how) {
  PyObject* mark = PyLong_FromLong(static_cast<long>(how));
  Py_DECREF(mark);  // CPython holds small ints for good
  return mark;
}

std::optional<Written> written_as(PyObject* mark) {
  return mark ? std::optional(static_cast<Written>(PyLong_AsLong(mark))) : std::nullopt;
}

void Writes::about_to_write_item(PyObject* dict, PyObject* key, bool removes) {
  world_.followed_keys.puts_key(dict, key);
  Known* known = copied(dict);
  if (!known) return;
  if (!known->keys) known->keys = PyRef::steal(PyDict_New());
  const std::optional<Written> noted = written_as(PyDict_GetItemWithError(known->keys.get(), key));
  const bool comes_last = noted && !removes && PyDict_Contains(dict, key) == 0;
  if (comes_last) PyDict_DelItem(known->keys.get(), key);
  if (!noted && world_.is_plain_key(key)) {
    if (PyObject* item = PyDict_GetItemWithError(known->before.get(), key)) world_.goodbyes.may_go(item);
    if (removes) world_.goodbyes.may_go(key);
  }
  auto note = [&](Written how) { PyDict_SetItem(known->keys.get(), key, mark_of(how)); };
  if (!noted || comes_last || removes)
    note(removes || (comes_last && noted == Written::removed) ? Written::removed : Written::put);
  else if (noted == Written::moved)
    note(Written::moved_and_put);
  PyErr_Clear();  // where the key cannot be hashed the write itself will raise
}

void Writes::about_to_update(PyObject* dict, PyObject* mapping) {
  if (!PyDict_CheckExact(mapping) || !world_.find(dict)) return about_to_write(dict);
  if (!world_.has_plain_keys(mapping)) return world_.end_region(Why::key_written);
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(mapping, &position, &key, &value)) about_to_write_item(dict, key);
}

namespace {

/// Do both hold the very same objects, a dict also the same keys in the same order?
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

bool Writes::is_as_before(PyObject* container) const {
  const Known* known = world_.find(container);
  if (!known || PyODict_Check(container))
    return false;  // the plain dict inside an OrderedDict does not show move_to_end()
  PyRef now = PyRef::steal(copy_contents(container));
  if (!now) return PyErr_Clear(), false;
  return are_same_items(now.get(), known->before.get());
}

std::string Writes::trace() const {
  if (!world_.unsound.empty()) return world_.unsound;
  for (const guard::NumberStep& step : world_.numbers.steps)
    if (step.phase == guard::Phase::early) return "it drew a random number";
  for (PyObject* each : written)
    if (!is_as_before(each)) return std::string("it wrote to a ") + Py_TYPE(each)->tp_name;
  for (const WrittenField& each : written_fields)
    return std::string("it wrote to a slot of a ") + Py_TYPE(each.object.get())->tp_name;
  for (const WrittenClass& each : written_classes)
    return std::string("it gave an attribute to ") + reinterpret_cast<PyTypeObject*>(each.cls.get())->tp_name;
  for (const WrittenTensor& each : written_tensors)
    return each.part == Effect::set_grad ? "it set a gradient" : "it gave a tensor other data";
  for (const WrittenContext& each : written_context)
    if (!each.restored && guard::context_value(each.variable.get()) != each.before.get())
      return "it set a context variable";
  if (!world_.calls.empty()) return "it printed or logged";
  if (!world_.resumed.empty()) return "it took something from a generator";
  if (!world_.advanced.empty()) return "it took something from an iterator";
  return world_.locks.empty() ? "" : "it took a lock";
}

void Writes::about_to_set_context(PyObject* variable) {
  PyObject* now = guard::context_value(variable);
  for (WrittenContext& written : written_context)
    if (written.variable.get() == variable) {
      written.set_to_what_it_was |= !written.restored && now == written.before.get();
      written.restored = false;
      return;
    }
  written_context.push_back({PyRef::share(variable), PyRef::share(now)});
}

int Writes::set_grad(PyObject* tensor, PyObject* value) {
  // Reading the gradient of a tensor that is no leaf would warn, so it is not asked for.
  const bool leaf = guard::is_autograd_leaf(tensor);
  PyRef before = PyRef::steal(leaf ? PyObject_GetAttrString(tensor, "grad") : nullptr);
  if ((leaf && !before) || observe::set_grad(tensor, value) < 0) return -1;
  if (world_.find(tensor)) wrote_tensor(Effect::set_grad, tensor, value, std::move(before));
  return 0;
}

void Writes::wrote_tensor(Effect part, PyObject* tensor, PyObject* value, PyRef before) {
  const auto last = std::find_if(written_tensors.rbegin(), written_tensors.rend(),
                                 [&](const WrittenTensor& each) { return each.tensor.get() == tensor; });
  if (last != written_tensors.rend() && last->part == part)
    last->value = PyRef::share(value);
  else
    written_tensors.push_back({part, PyRef::share(tensor), PyRef::share(value), std::move(before)});
}

bool Writes::was_given(Effect part, PyObject* tensor) const {
  return std::ranges::any_of(written_tensors, [&](const WrittenTensor& each) {
    return each.part == part && each.tensor.get() == tensor;
  });
}

int Writes::set_data(PyObject* tensor, PyObject* value, PyRef before) {
  if (observe::set_data(tensor, value) < 0) return -1;
  wrote_tensor(Effect::set_data, tensor, value, std::move(before));
  return 0;
}

bool WrittenContext::gives_back_before(PyObject* old) const {
  return old == before.get() || std::string_view(Py_TYPE(old)->tp_name) == "Token.MISSING";
}

bool Writes::about_to_reset_context(PyObject* variable, PyObject* token) {
  if (world_.find(token)) return false;
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

void Writes::about_to_write_field(PyObject* object, Py_ssize_t offset) {
  const Known* known = world_.find(object);
  if (!known) return;
  note_showing(known->source);
  for (const WrittenField& written : written_fields)
    if (written.object.get() == object && written.offset == offset) return;
  PyObject* before = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
  written_fields.push_back({PyRef::share(object), offset, PyRef::share(before)});
  world_.goodbyes.also_held(object);
  if (before) world_.goodbyes.also_held(before), world_.goodbyes.may_go(before);
}

void Writes::about_to_write_class(PyTypeObject* cls, PyObject* name) {
  auto* object = reinterpret_cast<PyObject*>(cls);
  note_showing(world_.pin(object).source);
  for (const WrittenClass& written : written_classes)
    if (written.cls.get() == object && PyUnicode_Compare(written.name.get(), name) == 0) return;
  PyObject* before = PyDict_GetItemWithError(type_dict(cls), name);
  written_classes.push_back({PyRef::share(object), PyRef::share(name), PyRef::share(before)});
  if (before) world_.goodbyes.also_held(before), world_.goodbyes.may_go(before);
}

bool Writes::is_written(PyTypeObject* type, PyObject* name) {
  for (const WrittenClass& written : written_classes) {
    auto* cls = reinterpret_cast<PyTypeObject*>(written.cls.get());
    if (PyUnicode_Compare(written.name.get(), name) != 0 || !PyType_IsSubtype(type, cls)) continue;
    // No single guard says that a class inherits the attribute: a class in between may have its own.
    if (cls != type) world_.end_region(Why::read_through_class);
    return true;
  }
  return false;
}

WorldUndo Writes::undo() const {
  WorldUndo undo;
  for (PyObject* each : written) undo.contents(each, world_.find(each)->before.get());
  for (const WrittenField& each : written_fields)
    undo.field(each.object.get(), each.offset, each.before.get());
  for (const WrittenClass& each : written_classes)
    undo.attribute(each.cls.get(), each.name.get(), each.before.get());
  for (const Effect part : {Effect::set_data, Effect::set_grad})  // data first: a gradient must fit them
    for (const WrittenTensor& each : std::views::reverse(written_tensors))
      if (each.part == part && each.before) undo.tensor(part, each.tensor.get(), each.before.get());
  // A variable that was not set before can only be unset with its token, which the program has.
  for (const WrittenContext& each : written_context)
    if (!each.restored && each.before) undo.context(each.variable.get(), each.before.get());
  return undo;
}

}  // namespace bolt::observe

// observe/values/keys.cpp
// Numbers and texts that differ between calls as keys of dicts (see world.h).
//
//   self.cache[self.step] = x        step, 7 now, is not among the keys that self.cache had before;
//   self.cache[self.step]            it is the key that the run put there
//
// Where a lookup ends depends on which keys are equal, not on what they are. So a followed key stays
// followed: it is told from each other key by a fact, and the recipe stores under what it is in the call.
// Invariant: of two keys that the run put into one dict, the same facts or guards say in every call whether
// they are equal, as soon as the second is there. C code that hashes keys by itself, into another container,
// does not know of this: they are used before (use_keys, and World::use of what holds them). The order of a
// set's elements depends on what they are, so those are used, too.
//
// A key that is equal to one that is no followed number itself is used: the region is for that value.
#include <algorithm>

#include "guard/numpy_numbers.h"
#include "interp/semantics.h"
#include "observe/world.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

constexpr size_t kMostFollowed = 16, kMostPlain = 64;  // each call tells them apart again

/// Compared with a number or text by C alone, by its value.
bool is_plain(PyObject* key) {
  return guard::is_leaf(key) && !is_heap_type(Py_TYPE(key)) && !guard::is_numpy_number(key) &&
         !PyTuple_Check(key);
}

/// Never equal to a number or text.
bool is_of_another_kind(PyObject* key) { return PyTuple_CheckExact(key) || World::is_told_by_identity(key); }

template <class Visit>
void for_each_key(PyObject* dict, Visit visit) {
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) visit(key);
}

}  // namespace

bool holds_key_itself(PyObject* dict, PyObject* key) {
  bool found = false;
  for_each_key(dict, [&](PyObject* each) { found |= each == key; });
  return found;
}

PyObject* contains_function() {
  static PyObject* const contains = PyObject_GetAttrString(import_module("_operator"), "contains");
  return contains;
}

bool World::is_followed_key(PyObject* key) const {
  // Not floats: nan is no key but itself.
  return (PyLong_CheckExact(key) || PyUnicode_CheckExact(key)) && follows_number(key) && !late(key) &&
         !is_open(key);
}

bool World::may_follow_keys(PyObject* container) {
  static PyTypeObject* const with_default = native_type("collections", "defaultdict");
  if (PySet_CheckExact(container)) {
    const Known* known = find(container);
    return known && !known->read_whole;
  }
  const bool is_plain_dict =
      PyDict_CheckExact(container) || PyODict_CheckExact(container) || Py_IS_TYPE(container, with_default);
  if (!is_plain_dict && !(PyDict_Check(container) && is_python_class(Py_TYPE(container)))) return false;
  // What has names as keys is read by C, too.
  const bool is_namespace = std::any_of(namespaces_.begin(), namespaces_.end(),
                                        [&](const PyRef& each) { return each.get() == container; });
  if (is_namespace) return false;
  const Known* known = find(container);
  return !known ||
         (known->source->access != Access::instance_dict && known->source->access != Access::constant);
}

/// Are the two the same in every call, whatever that is?
bool World::are_one_number(PyObject* a, PyObject* b) {
  const Sym *x = followed(a), *y = followed(b);
  return x && y ? *x == *y : step_of(a) == step_of(b);
}

/// `key` is not, or where no more is asked it is, among the keys that the dict or set had before the run,
/// which wrote no equal one.
void World::tell_from_outside(const Known& known, PyObject* key, bool asks) {
  if (known.window.cleared) return;
  PyObject* const contents = known.before ? known.before.get() : known.object.get();
  const int there =
      is_set(known.object.get()) ? PySet_Contains(known.object.get(), key) : PyDict_Contains(contents, key);
  if (there < 0) PyErr_Clear();
  const bool may_be_gone = there > 0 && known.window.front;
  if (there < 0 || (there && !asks) || may_be_gone)
    return use(key), may_be_gone ? read_whole(known.object.get()) : void();
  using guard::NumberOp;
  const int dict = numbers.add({NumberOp::source, tree->keep(known.source), {}, {}, {}});
  went_by({NumberOp::call, 0, PyRef::share(contains_function()), {}, {dict, step_of(key)}},
          there ? Py_True : Py_False);
}

/// From those among `keys`, which the run put there, that are followed. False: it has been used.
bool World::tell_from_followed(const std::vector<PyObject*>& keys, PyObject* key) {
  const bool follows = is_followed_key(key);
  for (PyObject* each : keys) {
    const bool equal = PyObject_RichCompareBool(each, key, Py_EQ) == 1;
    if (equal && !follows) return use(each), false;
    if (!equal || !are_one_number(each, key))
      went_by({guard::NumberOp::compare, Py_EQ, {}, {}, {step_of(each), step_of(key)}},
              equal ? Py_True : Py_False);
  }
  return follows;
}

/// From the keys that the run put into it.
void World::tell_from_own(PyObject* dict, PyObject* key) {
  std::vector<PyObject*> followed, plain;
  bool strange = false;
  for_each_key(dict, [&](PyObject* each) {
    if (is_followed_key(each))
      followed.push_back(each);
    else if (is_plain(each))
      plain.push_back(each);
    else
      strange |= !is_of_another_kind(each);
  });
  const bool follows = is_followed_key(key);
  if (!follows && (followed.empty() || is_of_another_kind(key))) return;
  if (strange || followed.size() > kMostFollowed || plain.size() > kMostPlain ||
      !(follows || is_plain(key))) {
    for (PyObject* each : followed) use(each);
    return use(key);
  }
  if (!tell_from_followed(followed, key) || plain.empty()) return;
  PyRef others = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(plain.size())));
  for (size_t i = 0; i < plain.size(); ++i)
    PyTuple_SET_ITEM(others.get(), static_cast<Py_ssize_t>(i), Py_NewRef(plain[i]));
  if (PySequence_Contains(others.get(), key) != 0) return use(key);
  const int step = numbers.add({guard::NumberOp::constant, 0, others, {}, {}});
  went_by({guard::NumberOp::call, 0, PyRef::share(contains_function()), {}, {step, step_of(key)}}, Py_False);
}

/// The step of a text made of numbers and texts that guards know; -1: it has none.
int World::text_step(PyObject* text) {
  using guard::NumberOp;
  const Late* made = late(text);
  if (!made) return step_of(text);
  std::vector<int> parts;
  for (const PyRef& part : made->parts) {
    parts.push_back(part && can_be_followed(part.get()) ? text_step(part.get()) : -1);
    if (part && parts.back() < 0) return -1;
  }
  auto call = [&](const char* name, std::vector<int> given) {
    const PyRef function = PyRef::share(PyDict_GetItemString(PyEval_GetBuiltins(), name));
    return numbers.add({NumberOp::call, 0, function, {}, std::move(given)});
  };
  auto join = [&](int kind, int left, int right) {
    return numbers.add({NumberOp::binary, kind, {}, {}, {left, right}});
  };
  if (made->make == Make::join) {
    int whole = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) whole = join(interp::Binary::add, whole, parts[i]);
    return whole;
  }
  if (made->make == Make::interpolate && made->number == 0)
    return join(interp::Binary::remainder, parts[0], parts[1]);
  if (made->make != Make::format) return -1;
  static const char* const conversions[] = {nullptr, "str", "repr", "ascii"};
  const int shown = made->number ? call(conversions[made->number], {parts[0]}) : parts[0];
  return call("format", parts[1] < 0 ? std::vector{shown} : std::vector{shown, parts[1]});
}

void World::follow_text(PyObject* dict, PyObject* text) {
  if (late_.empty() || !late(text) || !PyUnicode_CheckExact(text) || !is_known_when_checked(text)) return;
  if (dict && !may_follow_keys(dict)) return;
  const int step = text_step(text);
  if (step < 0) return;
  numbers.steps[static_cast<size_t>(step)].type = &PyUnicode_Type;
  const PyRef held = PyRef::share(text);
  late_.erase(text);
  follow_step(text, step);
  begin_to_follow();
}

void World::tell_from_keys(PyObject* dict, PyObject* key, bool asks) {
  follow_text(dict, key);
  if (!is_followed_key(key) || !may_follow_keys(dict)) {
    told_apart(key);
    if (!has_followed_keys_) return;
  }
  const Known* known = find(dict);
  PyObject* own = known ? known->keys.get() : dict;
  if (own && holds_key_itself(own, key)) return;  // told when it was put there, as were those that came later
  if (own) tell_from_own(own, key);
  const bool is_own = known && own && PyDict_Contains(own, key) == 1;
  if (known && !is_own && is_followed_key(key)) tell_from_outside(*known, key, asks);
}

/// Where it is there already it stays in its place, which whoever went through the dict knows.
void World::puts_key(PyObject* dict, PyObject* key) {
  const Known* known = find(dict);
  tell_from_keys(dict, key, known && !known->read_whole);
  has_followed_keys_ |= is_followed_key(key);
}

bool World::about_to_write_element(PyObject* set, PyObject* element, bool removes) {
  Known* known = find(set);
  follow_text(set, element);
  const bool is_constant = (PyLong_CheckExact(element) || PyUnicode_CheckExact(element)) && !late(element) &&
                           !is_open(element) && !is_followed_key(element);
  if (!known || known->read_whole || !(is_constant || is_followed_key(element))) return false;
  puts_key(set, element);
  const PyRef own = PyRef::share(known->keys.get());
  if (is_constant && !(own && PyDict_Contains(own.get(), element) == 1))
    tell_from_outside(*known, element, true);
  if (!copied(set)) return true;  // the region has ended
  if (!known->keys) known->keys = PyRef::steal(PyDict_New());
  known->elements.emplace_back(PyRef::share(element), !removes);
  return PyDict_SetItem(known->keys.get(), element, mark_of(Written::put)) == 0;
}

void World::use_positions(const Known& known) {
  for (const PyRef& index : known.placed) use(index.get());
  if (!known.keys) return;
  const bool set = is_set(known.object.get());
  for_each_key(known.keys.get(), [&](PyObject* key) {
    if (is_followed_key(key) && (set || PyDict_Contains(known.before.get(), key) == 1)) use(key);
  });
}

void World::puts_keys_of_display(PyObject* const* items, Py_ssize_t n) {
  bool follows = false;
  for (Py_ssize_t i = 0; i < n; i += 2) follow_text(nullptr, items[i]), follows |= is_followed_key(items[i]);
  PyRef dict = PyRef::steal(follows ? PyDict_New() : nullptr);
  for (Py_ssize_t i = 0; i < n; i += 2) {
    dict ? puts_key(dict.get(), items[i]) : told_apart(items[i]);
    if (dict && is_plain_key(items[i])) PyDict_SetItem(dict.get(), items[i], Py_None);
  }
}

void World::puts_keys(PyObject* dict, PyObject* mapping) {
  if (has_followed_keys_) for_each_key(mapping, [&](PyObject* key) { puts_key(dict, key); });
}

void World::note_namespace(PyObject* dict) {
  use_keys(dict);
  if (!follows() || !PyDict_Check(dict) || find(dict)) return;
  const bool noted = std::any_of(namespaces_.begin(), namespaces_.end(),
                                 [&](const PyRef& each) { return each.get() == dict; });
  if (!noted) namespaces_.push_back(PyRef::share(dict));
}

void World::use_keys(PyObject* container) {
  if (has_followed_keys_ && PyDict_Check(container))
    for_each_key(container, [&](PyObject* key) { use_scalar(key); });
}

}  // namespace bolt::observe

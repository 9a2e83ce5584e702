// observe/values/keys.cpp
#include "observe/values/keys.h"

#include <algorithm>

#include "guard/numpy_numbers.h"
#include "interp/semantics.h"
#include "observe/world.h"
#include "python/slots.h"

namespace bolt::observe {
namespace {

constexpr size_t kMostFollowed = 16, kMostPlain = 64;  // each call tells them apart again

/// Compared with a number or text by C alone, by its value.
bool compares_by_value(PyObject* key) {
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

bool FollowedKeys::is_followed_key(PyObject* key) const {
  // Not floats: nan is no key but itself.
  return (PyLong_CheckExact(key) || PyUnicode_CheckExact(key)) && world_.follows_number(key) &&
         !world_.late(key) && !world_.is_open(key);
}

bool FollowedKeys::may_follow_keys(PyObject* container) {
  static PyTypeObject* const with_default = native_type("collections", "defaultdict");
  if (PySet_CheckExact(container)) {
    const Known* known = world_.find(container);
    return known && !known->read_whole;
  }
  const bool is_plain_dict =
      PyDict_CheckExact(container) || PyODict_CheckExact(container) || Py_IS_TYPE(container, with_default);
  if (!is_plain_dict && !(PyDict_Check(container) && is_python_class(Py_TYPE(container)))) return false;
  // What has names as keys is read by C, too.
  const bool is_namespace = std::any_of(namespaces_.begin(), namespaces_.end(),
                                        [&](const PyRef& each) { return each.get() == container; });
  if (is_namespace) return false;
  const Known* known = world_.find(container);
  return !known ||
         (known->source->access != Access::instance_dict && known->source->access != Access::constant);
}

bool FollowedKeys::are_one_number(PyObject* a, PyObject* b) {
  const Sym *x = world_.followed(a), *y = world_.followed(b);
  return x && y ? *x == *y : world_.step_of(a) == world_.step_of(b);
}

void FollowedKeys::tell_from_outside(const Known& known, PyObject* key, bool asks) {
  if (known.window.cleared) return;
  PyObject* const contents = known.before ? known.before.get() : known.object.get();
  const int there =
      is_set(known.object.get()) ? PySet_Contains(known.object.get(), key) : PyDict_Contains(contents, key);
  if (there < 0) PyErr_Clear();
  const bool may_be_gone = there > 0 && known.window.front;
  if (there < 0 || (there && !asks) || may_be_gone)
    return world_.use(key), may_be_gone ? world_.read_whole(known.object.get()) : void();
  using guard::NumberOp;
  const int dict = world_.numbers.add({NumberOp::source, world_.tree->keep(known.source), {}, {}, {}});
  world_.went_by({NumberOp::call, 0, PyRef::share(contains_function()), {}, {dict, world_.step_of(key)}},
                 there ? Py_True : Py_False);
}

bool FollowedKeys::tell_from_followed(const std::vector<PyObject*>& keys, PyObject* key) {
  const bool follows = is_followed_key(key);
  for (PyObject* each : keys) {
    const bool equal = PyObject_RichCompareBool(each, key, Py_EQ) == 1;
    if (equal && !follows) return world_.use(each), false;
    if (!equal || !are_one_number(each, key))
      world_.went_by({guard::NumberOp::compare, Py_EQ, {}, {}, {world_.step_of(each), world_.step_of(key)}},
                     equal ? Py_True : Py_False);
  }
  return follows;
}

void FollowedKeys::tell_from_own(PyObject* dict, PyObject* key) {
  std::vector<PyObject*> followed, plain;
  bool strange = false;
  for_each_key(dict, [&](PyObject* each) {
    if (is_followed_key(each))
      followed.push_back(each);
    else if (compares_by_value(each))
      plain.push_back(each);
    else
      strange |= !is_of_another_kind(each);
  });
  const bool follows = is_followed_key(key);
  if (!follows && (followed.empty() || is_of_another_kind(key))) return;
  if (strange || followed.size() > kMostFollowed || plain.size() > kMostPlain ||
      !(follows || compares_by_value(key))) {
    for (PyObject* each : followed) world_.use(each);
    return world_.use(key);
  }
  if (!tell_from_followed(followed, key) || plain.empty()) return;
  PyRef others = PyRef::steal(PyTuple_New(static_cast<Py_ssize_t>(plain.size())));
  for (size_t i = 0; i < plain.size(); ++i)
    PyTuple_SET_ITEM(others.get(), static_cast<Py_ssize_t>(i), Py_NewRef(plain[i]));
  if (PySequence_Contains(others.get(), key) != 0) return world_.use(key);
  const int step = world_.numbers.add({guard::NumberOp::constant, 0, others, {}, {}});
  world_.went_by(
      {guard::NumberOp::call, 0, PyRef::share(contains_function()), {}, {step, world_.step_of(key)}},
      Py_False);
}

int FollowedKeys::text_step(PyObject* text) {
  using guard::NumberOp;
  const Late* made = world_.late(text);
  if (!made) return world_.step_of(text);
  std::vector<int> parts;
  for (const PyRef& part : made->parts) {
    parts.push_back(part && can_be_followed(part.get()) ? text_step(part.get()) : -1);
    if (part && parts.back() < 0) return -1;
  }
  auto call = [&](const char* name, std::vector<int> given) {
    const PyRef function = PyRef::share(PyDict_GetItemString(PyEval_GetBuiltins(), name));
    return world_.numbers.add({NumberOp::call, 0, function, {}, std::move(given)});
  };
  auto join = [&](int kind, int left, int right) {
    return world_.numbers.add({NumberOp::binary, kind, {}, {}, {left, right}});
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

void FollowedKeys::follow_text(PyObject* dict, PyObject* text) {
  if (!world_.late(text) || !PyUnicode_CheckExact(text) || !world_.is_known_when_checked(text)) return;
  if (dict && !may_follow_keys(dict)) return;
  const int step = text_step(text);
  if (step < 0) return;
  world_.numbers.steps[step].type = &PyUnicode_Type;
  const PyRef held = PyRef::share(text);
  world_.no_longer_late(text);
  world_.follow_step(text, step);
  world_.begin_to_follow();
}

void FollowedKeys::tell_from_keys(PyObject* dict, PyObject* key, bool asks) {
  follow_text(dict, key);
  if (!is_followed_key(key) || !may_follow_keys(dict)) {
    world_.told_apart(key);
    if (!has_followed_keys_) return;
  }
  const Known* known = world_.find(dict);
  PyObject* own = known ? known->keys.get() : dict;
  if (own && holds_key_itself(own, key)) return;  // told when it was put there, as were those that came later
  if (own) tell_from_own(own, key);
  const bool is_own = known && own && PyDict_Contains(own, key) == 1;
  if (known && !is_own && is_followed_key(key)) tell_from_outside(*known, key, asks);
}

/// Where it is there already it stays in its place, which whoever went through the dict knows.
void FollowedKeys::puts_key(PyObject* dict, PyObject* key) {
  const Known* known = world_.find(dict);
  tell_from_keys(dict, key, known && !known->read_whole);
  has_followed_keys_ |= is_followed_key(key);
}

bool FollowedKeys::about_to_write_element(PyObject* set, PyObject* element, bool removes) {
  Known* known = world_.find(set);
  follow_text(set, element);
  const bool is_constant = (PyLong_CheckExact(element) || PyUnicode_CheckExact(element)) &&
                           !world_.late(element) && !world_.is_open(element) && !is_followed_key(element);
  if (!known || known->read_whole || !(is_constant || is_followed_key(element))) return false;
  puts_key(set, element);
  const PyRef own = PyRef::share(known->keys.get());
  if (is_constant && !(own && PyDict_Contains(own.get(), element) == 1))
    tell_from_outside(*known, element, true);
  if (!world_.writes.copied(set)) return true;  // the region has ended
  if (!known->keys) known->keys = PyRef::steal(PyDict_New());
  known->elements.emplace_back(PyRef::share(element), !removes);
  return PyDict_SetItem(known->keys.get(), element, mark_of(Written::put)) == 0;
}

void FollowedKeys::use_positions(const Known& known) {
  for (const PyRef& index : known.placed) world_.use(index.get());
  if (!known.keys) return;
  const bool set = is_set(known.object.get());
  for_each_key(known.keys.get(), [&](PyObject* key) {
    if (is_followed_key(key) && (set || PyDict_Contains(known.before.get(), key) == 1)) world_.use(key);
  });
}

void FollowedKeys::puts_keys_of_display(PyObject* const* items, Py_ssize_t n) {
  bool follows = false;
  for (Py_ssize_t i = 0; i < n; i += 2) follow_text(nullptr, items[i]), follows |= is_followed_key(items[i]);
  PyRef dict = PyRef::steal(follows ? PyDict_New() : nullptr);
  for (Py_ssize_t i = 0; i < n; i += 2) {
    dict ? puts_key(dict.get(), items[i]) : world_.told_apart(items[i]);
    if (dict && world_.is_plain_key(items[i])) PyDict_SetItem(dict.get(), items[i], Py_None);
  }
}

void FollowedKeys::puts_keys(PyObject* dict, PyObject* mapping) {
  if (has_followed_keys_) for_each_key(mapping, [&](PyObject* key) { puts_key(dict, key); });
}

void FollowedKeys::note_namespace(PyObject* dict) {
  use_keys(dict);
  if (!world_.follows() || !PyDict_Check(dict) || world_.find(dict)) return;
  const bool noted = std::any_of(namespaces_.begin(), namespaces_.end(),
                                 [&](const PyRef& each) { return each.get() == dict; });
  if (!noted) namespaces_.push_back(PyRef::share(dict));
}

void FollowedKeys::use_keys(PyObject* container) {
  if (has_followed_keys_ && PyDict_Check(container))
    for_each_key(container, [&](PyObject* key) { world_.use_scalar(key); });
}

}  // namespace bolt::observe

// observe/values/places.cpp
#include "observe/values/places.h"

#include <algorithm>

#include "observe/world.h"

namespace bolt::observe {
namespace {

using guard::NumberOp;

constexpr size_t kMostPlaces = 16;  // places that the run writes to: each is told from each

/// (container, place) -> what C has there: no __missing__ and no default factory is asked.
PyObject* item_of(PyObject*, PyObject* args) {
  PyObject *container = PyTuple_GET_ITEM(args, 0), *place = PyTuple_GET_ITEM(args, 1);
  if (PyList_Check(container)) return Py_XNewRef(PyList_GetItem(container, PyLong_AsSsize_t(place)));
  PyObject* item = PyDict_GetItemWithError(container, place);
  if (!item && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, place);
  return Py_XNewRef(item);
}

PyObject* item_function() {
  static PyMethodDef def = {"item", item_of, METH_VARARGS, nullptr};
  static PyObject* const function = PyCFunction_New(&def, nullptr);
  return function;
}

/// (dict, n) -> its key number n.
PyObject* key_of(PyObject*, PyObject* args) {
  PyObject* dict = PyTuple_GET_ITEM(args, 0);
  const PyRef keys = PyRef::steal(Py_TYPE(dict)->tp_iter(dict));
  PyRef key;
  for (Py_ssize_t n = PyLong_AsSsize_t(PyTuple_GET_ITEM(args, 1)); keys && n >= 0; --n)
    if (!(key = PyRef::steal(Py_TYPE(keys.get())->tp_iternext(keys.get())))) break;
  if (!key && !PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "the dict has no such key");
  return key.release();
}

}  // namespace

PyObject* getitem_function() {
  static PyObject* const function = PyObject_GetAttrString(import_module("_operator"), "getitem");
  return function;
}

namespace {

PyObject* key_function() {
  static PyMethodDef def = {"key", key_of, METH_VARARGS, nullptr};
  static PyObject* const function = PyCFunction_New(&def, nullptr);
  return function;
}

bool can_be_step(PyObject* item) {
  return can_be_followed(item) && !(PyUnicode_Check(item) && PyUnicode_GET_LENGTH(item) == 0);
}

/// A tensor, also of a class that is only a name (Parameter): operators take it for any other.
bool can_be_chosen(PyObject* item) {
  return guard::is_plain_tensor(item) ||
         (guard::is_tensor(item) && !guard::overrides_torch(item) && !guard::sees_operators(item));
}

}  // namespace

Known* Places::known_in_place(PyObject* list) {
  Known* known = PyList_CheckExact(list) ? world_.lengths.known_by_ends(list) : nullptr;
  return known && !known->of && !known->window.is_moved() ? known : nullptr;
}

Py_ssize_t Places::place_in(Known& known, PyObject* index) {
  if (!PyLong_CheckExact(index) || !world_.followed(index) || world_.is_open(index)) return -1;
  const long long at = PyLong_AsLongLong(index);
  if (at < 0 || at >= native_length((known.before ? known.before : known.object).get())) return -1;
  const Sym place = world_.expression(index);
  world_.notes->add(Sym(0), Relation::le, place);
  world_.notes->add(place, Relation::lt, world_.lengths.length_before(known));
  return at;
}

bool Places::is_placed(Known& known, Sym index, Py_ssize_t at) {
  for (const PyRef& each : known.placed) {
    const bool is_it = PyLong_AsSsize_t(each.get()) == at;
    const Sym place = world_.expression(each.get());
    if (!(place == index)) world_.notes->answered(place, Relation::eq, index, is_it);
    if (is_it) return true;
  }
  return false;
}

PyObject* Places::item_from(Known& known, PyObject* item, PyObject* place) {
  const int container = world_.numbers.add({NumberOp::source, world_.tree->keep(known.source), {}, {}, {}});
  PyObject* mine = world_.computed(
      Py_NewRef(item),
      {NumberOp::call, 0, PyRef::share(item_function()), {}, {container, world_.step_of(place)}});
  if (mine && mine != item) world_.stands_for(mine, item);
  return mine;
}

PyObject* Places::chosen_tensor(Known& known, PyObject* item, PyObject* place) {
  const Known* before = world_.find(item);
  for (const Chosen& each : chosen_) {
    if (!before || each.source != before->source || each.from != &known ||
        PyObject_RichCompareBool(each.place.get(), place, Py_EQ) != 1)
      continue;
    if (!world_.followed_keys.are_one_number(each.place.get(), place))
      world_.went_by(
          {NumberOp::compare, Py_EQ, {}, {}, {world_.step_of(each.place.get()), world_.step_of(place)}},
          Py_True);
    return Py_NewRef(item);
  }
  if (before) return nullptr;
  const int container = world_.numbers.add({NumberOp::source, world_.tree->keep(known.source), {}, {}, {}});
  const int step = world_.numbers.add(
      {NumberOp::call, 0, PyRef::share(item_function()), {}, {container, world_.step_of(place)}});
  if (world_.numbers.steps[step].phase != guard::Phase::check) return nullptr;
  const PyRef text =
      PyRef::steal(PyUnicode_FromString((known.source->str(world_.tree->root_names) + "[...]").c_str()));
  if (!text) return PyErr_Clear(), nullptr;
  Source* const source = world_.tree->chosen(step, text.get(), place);
  chosen_.push_back({&known, source, PyRef::share(place)});
  world_.reached(item, source);
  return Py_NewRef(item);
}

PyObject* Places::item_by_number(PyObject* list, PyObject* index) {
  Known* known = world_.followed(index) ? known_in_place(list) : nullptr;
  if (!known || world_.lengths.index_from_end(list, index)) return nullptr;
  const Py_ssize_t size = native_length((known->before ? known->before : known->object).get());
  const Py_ssize_t at = PyLong_AsSsize_t(index);
  if (at < 0 || at >= size) return nullptr;
  const bool is_own = std::ranges::any_of(
      known->placed, [&](const PyRef& each) { return PyLong_AsSsize_t(each.get()) == at; });
  PyObject* item = PyList_GET_ITEM(list, at);
  const bool is_tensor = can_be_chosen(item);
  if (!is_own && !is_tensor && !can_be_step(item)) return nullptr;
  if (place_in(*known, index) < 0) return nullptr;
  if (is_placed(*known, world_.expression(index), at)) return Py_NewRef(item);
  return is_tensor ? chosen_tensor(*known, item, index) : item_from(*known, item, index);
}

PyObject* Places::item_by_key(PyObject* dict, PyObject* key) {
  if (!world_.followed_keys.is_followed_key(key) || !PyDict_Check(dict) ||
      !world_.followed_keys.may_follow_keys(dict))
    return nullptr;
  Known* known = world_.find(dict);
  if (!known || known->window.cleared || known->window.front) return nullptr;
  PyObject* const own = known->keys.get();
  if (own && !holds_key_itself(own, key)) world_.followed_keys.tell_from_own(own, key);
  if (!world_.followed_keys.is_followed_key(key)) return nullptr;  // it was used
  if (own && PyDict_Contains(own, key) == 1) return PyDict_GetItemWithError(dict, key);
  PyObject* item = PyDict_GetItemWithError((known->before ? known->before : known->object).get(), key);
  const bool is_tensor = item && can_be_chosen(item);
  if (!item || (!is_tensor && !can_be_step(item))) return nullptr;
  // Held on as a followed one, or as what is known.
  const PyRef value =
      PyRef::steal(is_tensor ? chosen_tensor(*known, item, key) : item_from(*known, item, key));
  if (!value) PyErr_Clear();
  return value.get();
}

bool Places::has_first_key(PyObject* dict) {
  Known* known = world_.find(dict);
  if (!known || !(world_.follows() || hooks_.follows_length(*known->source, world_.tree->root_names)) ||
      known->read_whole || known->window.cleared || !(PyDict_CheckExact(dict) || PyODict_CheckExact(dict)) ||
      !world_.followed_keys.may_follow_keys(dict) || !world_.lengths.owns_new_keys(*known))
    return false;
  const PyRef keys = native_items(dict);
  PyObject* key = keys && PyList_GET_SIZE(keys.get()) ? PyList_GET_ITEM(keys.get(), 0) : nullptr;
  const Py_ssize_t before = native_length((known->before ? known->before : known->object).get());
  return key && known->window.front < before && can_be_step(key) && !PyFloat_Check(key) &&
         !world_.follows_number(key);
}

void Places::asks_first_key(PyObject* iterator, PyObject* dict) {
  asking_first_ = {PyRef::share(iterator), dict};
}

PyObject* Places::first_key(PyObject* iterator) {
  if (!asking_first_.first || asking_first_.first.get() != iterator) return nullptr;
  asking_first_.first = {};
  Known& known = *world_.find(asking_first_.second);
  const PyRef key = PyRef::steal(PyIter_Next(iterator));
  if (!key) return nullptr;
  if (const Sym length = world_.lengths.length_before(known); !length.is_const())
    world_.notes->add(Sym(known.window.front), Relation::lt, length);
  const int dict = world_.numbers.add({NumberOp::source, world_.tree->keep(known.source), {}, {}, {}}),
            at = world_.numbers.add(
                {NumberOp::constant, 0, PyRef::steal(PyLong_FromSsize_t(known.window.front)), {}, {}});
  PyObject* mine = world_.computed(Py_NewRef(key.get()),
                                   {NumberOp::call, 0, PyRef::share(key_function()), {}, {dict, at}});
  known.first = PyRef::share(mine);
  return mine;
}

bool Places::about_to_place(PyObject* list, PyObject* index) {
  Known* known = world_.followed(index) ? known_in_place(list) : nullptr;
  if (!known || known->placed.size() >= kMostPlaces || world_.lengths.index_from_end(list, index))
    return false;
  const Py_ssize_t at = place_in(*known, index);
  if (at < 0 || !world_.writes.copied(list)) return false;
  world_.goodbyes.may_lose(*known);
  if (!is_placed(*known, world_.expression(index), at)) known->placed.push_back(PyRef::share(index));
  return true;
}

PyObject* Places::text_length(PyObject* text) {
  if (!PyUnicode_CheckExact(text)) return nullptr;
  world_.followed_keys.follow_text(nullptr, text);
  if (!world_.follows_number(text) || world_.late(text) || world_.is_open(text)) return nullptr;
  static PyObject* const len = PyDict_GetItemString(PyEval_GetBuiltins(), "len");
  const int step = world_.step_of(text);
  return world_.computed(PyLong_FromSsize_t(PyUnicode_GET_LENGTH(text)),
                         {NumberOp::call, 0, PyRef::share(len), {}, {step}});
}

PyObject* Places::letters_of(PyObject* text, PyObject* key) {
  if (!PyUnicode_CheckExact(text) || !(PyLong_CheckExact(key) || PySlice_Check(key))) return nullptr;
  world_.followed_keys.follow_text(nullptr, text);
  if (!(world_.follows_number(text) || world_.follows_number(key)) || world_.late(text) ||
      world_.is_open(text) || world_.is_open(key) || (PySlice_Check(key) && world_.holds_followed(key)))
    return nullptr;
  const PyRef letters = PyRef::steal(PyObject_GetItem(text, key));
  if (!letters || !can_be_step(letters.get())) return PyErr_Clear(), nullptr;
  const int whole = world_.step_of(text),
            place = PySlice_Check(key)
                        ? world_.numbers.add({NumberOp::constant, 0, PyRef::share(key), {}, {}})
                        : world_.step_of(key);
  return world_.computed(Py_NewRef(letters.get()),
                         {NumberOp::call, 0, PyRef::share(getitem_function()), {}, {whole, place}});
}

}  // namespace bolt::observe

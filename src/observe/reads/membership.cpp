// observe/reads/membership.cpp
#include "observe/reads/membership.h"

#include <algorithm>
#include <cmath>

#include "python/slots.h"

namespace bolt::observe {
namespace {

constexpr Py_ssize_t kMostLookedThrough = 64;  // elements: each call looks through them

bool is_plain_container(PyObject* object) {
  for (PyTypeObject* type : {&PyTuple_Type, &PyList_Type, &PySet_Type, &PyFrozenSet_Type, &PyDict_Type})
    if (Py_IS_TYPE(object, type)) return true;
  return false;
}

/// What an element is compared by must be its value: a NaN is equal to itself if it is the same object.
bool is_plain_element(const World& world, PyObject* item) {
  if (!guard::is_leaf(item) || is_heap_type(Py_TYPE(item)) || PyTuple_Check(item)) return false;
  if (PyFloat_Check(item) && std::isnan(PyFloat_AS_DOUBLE(item))) return false;
  return !world.late(item) && !world.follows_number(item);
}

/// What `container` holds, guarded. Null: it is no plain one, or holds other things.
PyRef plain_elements(World& world, PyObject* container) {
  if (Py_IS_TYPE(container, &PyRange_Type)) return PyRef::share(container);
  if (!is_plain_container(container)) return {};
  const Known* known = world.find(container);
  if (known && known->before) return {};
  const PyRef list = native_items(container);
  PyRef items = PyRef::steal(list ? PyList_AsTuple(list.get()) : nullptr);
  if (!items) return PyErr_Clear(), PyRef();
  PyObject** const first = &PyTuple_GET_ITEM(items.get(), 0);
  const Py_ssize_t n = PyTuple_GET_SIZE(items.get());
  if (n > kMostLookedThrough ||
      !std::all_of(first, first + n, [&](PyObject* i) { return is_plain_element(world, i); }))
    return {};
  if (known && is_sequence(container))
    world.read_whole(container);
  else if (known)
    known->source->assume(Check::keys, items.get());
  for (Py_ssize_t i = 0; i < n; ++i) world.use_scalar(first[i]);
  return items;
}

}  // namespace

/// `container` and `part` as steps: the answer is noted.
static std::optional<bool> ask(World& world, PyObject* container, int step, PyObject* part) {
  const int answer = PySequence_Contains(container, part);
  if (answer < 0) return PyErr_Clear(), std::nullopt;
  world.went_by(
      {guard::NumberOp::call, 0, PyRef::share(contains_function()), {}, {step, world.step_of(part)}},
      answer ? Py_True : Py_False);
  return answer != 0;
}

std::optional<bool> number_among(Recording& recording, PyObject* container, PyObject* number) {
  World& world = recording.world;
  if (recording.on && (PyDict_Check(container) || is_set(container)))
    world.followed_keys.follow_text(container, number);
  if (PyObject* there =
          recording.on ? world.lists.told_of_list(contains_function(), container, number) : nullptr)
    return Py_DECREF(there), there == Py_True;
  const bool texts = PyUnicode_CheckExact(container) && PyUnicode_CheckExact(number);
  if (!recording.on || !(world.follows_number(number) || (texts && world.follows_number(container))))
    return std::nullopt;
  if (world.late(container) || world.late(number) || world.is_open(number)) return std::nullopt;
  if (texts) return ask(world, container, world.step_of(container), number);
  if (PyFloat_CheckExact(number) && std::isnan(PyFloat_AS_DOUBLE(number))) return std::nullopt;
  if (world.followed_keys.may_follow_keys(container) && world.followed_keys.is_followed_key(number)) {
    world.followed_keys.tell_from_keys(container, number, true);
    return (is_set(container) ? PySet_Contains(container, number) : PyDict_Contains(container, number)) == 1;
  }
  PyRef items = plain_elements(world, container);
  if (!items) return std::nullopt;
  return ask(world, items.get(), world.numbers.add({guard::NumberOp::constant, 0, items, {}, {}}), number);
}

PyObject* call_with_member(Recording& recording, const CFunction& row, const std::vector<PyObject*>& all) {
  const bool gets = row.name == "dict.get";
  if (all.size() < 2 || all.size() > (gets ? 3 : 2) || (!gets && row.method != "__contains__"))
    return nullptr;
  const std::optional<bool> there = number_among(recording, all[0], all[1]);
  if (!there || (gets && *there)) return nullptr;
  return Py_NewRef(!gets ? (*there ? Py_True : Py_False) : all.size() > 2 ? all[2] : Py_None);
}

}  // namespace bolt::observe

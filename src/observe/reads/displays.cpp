// observe/reads/displays.cpp
// Displays, comprehensions and arguments that are spread -> guards on what they take their items of, and
// notes of containers that they fill, which are from outside where a region began in the middle of one.

#include "interp/special.h"
#include "observe/calls/native_watch.h"
#include "observe/recording.h"
#include "observe/values/late.h"

namespace bolt::observe {

using interp::Semantics;

int Recording::list_append(Frame& frame, PyObject* list, PyObject* value) {
  if (on) world.writes.about_to_write(list, true);
  return Semantics::list_append(frame, list, value);
}

int Recording::list_extend(Frame& frame, PyObject* list, PyObject* iterable) {
  if (Known* of = on ? world.lengths.begin_extension(list, iterable) : nullptr) {
    const Py_ssize_t size = PyList_GET_SIZE(list);
    const int status = Semantics::list_extend(frame, list, iterable);
    if (status == 0) world.lengths.end_extension(list, of, size);
    return status;
  }
  const PyRef followed = on ? world.with_followed(iterable) : PyRef();
  PyRef seen;
  if (on && !followed && !gather(frame, iterable, seen)) return -1;
  if (seen) iterable = seen.get();
  if (on && !followed) world.use_scalar(iterable), touch(frame, iterable);
  if (on) world.writes.about_to_write(list, true);
  return Semantics::list_extend(frame, list, followed ? followed.get() : iterable);
}

int Recording::set_update(Frame& frame, PyObject* set, PyObject* iterable) {
  if (on) {
    world.use(iterable);
    touch(frame, iterable);
    world.writes.about_to_write(set);
  }
  const NativeReader reader(*this, false);
  return Semantics::set_update(frame, set, iterable);
}

int Recording::dict_update(Frame& frame, PyObject* dict, PyObject* mapping) {
  if (interp::maps_in_python(mapping)) return Semantics::dict_update(frame, dict, mapping);
  if (on) world.own_numbers_of(mapping), touch(frame, mapping);
  if (on && PyDict_Check(mapping)) world.followed_keys.puts_keys(dict, mapping);
  if (on) world.writes.about_to_update(dict, mapping);
  const NativeReader reader(*this, PyDict_Check(mapping));
  return Semantics::dict_update(frame, dict, mapping);
}

int Recording::dict_merge(Frame& frame, PyObject* dict, PyObject* mapping, PyObject* callable) {
  if (interp::maps_in_python(mapping)) {
    const int status = Semantics::dict_merge(frame, dict, mapping, callable);
    if (on) world.followed_keys.use_keys(dict);  // names of parameters
    return status;
  }
  if (on) world.own_numbers_of(mapping), touch(frame, mapping);
  if (on) world.followed_keys.use_keys(mapping);  // names of parameters
  if (on) world.writes.about_to_update(dict, mapping);
  return Semantics::dict_merge(frame, dict, mapping, callable);
}

PyObject* Recording::list_to_tuple(Frame& frame, PyObject* list) {
  if (PyObject* tuple = on ? world.lengths.tuple_of(list) : nullptr) return tuple;
  if (on) touch(frame, list);
  return Semantics::list_to_tuple(frame, list);
}

PyObject* Recording::star_args(Frame& frame, PyObject* callable, PyObject* iterable) {
  if (const PyRef followed = on ? world.with_followed(iterable) : PyRef())
    return Semantics::star_args(frame, callable, followed.get());
  PyRef seen;
  if (on && !gather(frame, iterable, seen)) return nullptr;
  if (seen) iterable = seen.get();
  if (on) world.use_scalar(iterable), touch(frame, iterable);
  return Semantics::star_args(frame, callable, iterable);
}

PyObject* Recording::star_kwargs(Frame& frame, PyObject* callable, PyObject* mapping) {
  if (on) world.own_numbers_of(mapping), touch(frame, mapping);
  if (on) world.followed_keys.use_keys(mapping);
  return Semantics::star_kwargs(frame, callable, mapping);
}

PyObject* Recording::build(Frame& frame, interp::Build kind, PyObject* const* items, Py_ssize_t n) {
  // Keys are hashed, values are only kept.
  if (on && kind == interp::Build::const_key_map) world.use(items[n - 1]);
  if (on && kind == interp::Build::set)
    for (Py_ssize_t i = 0; i < n; ++i) world.told_apart(items[i]);
  if (on && kind == interp::Build::map) world.followed_keys.puts_keys_of_display(items, n);
  if (on && kind == interp::Build::string)
    return late_join(world, Semantics::build(frame, kind, items, n), items, n);
  return Semantics::build(frame, kind, items, n);
}

int Recording::set_add(Frame& frame, PyObject* set, PyObject* value) {
  if (on) world.told_apart(value), world.writes.about_to_write(set);
  return Semantics::set_add(frame, set, value);
}

int Recording::map_add(Frame& frame, PyObject* map, PyObject* key, PyObject* value) {
  if (on) world.writes.about_to_write_item(map, key);
  return Semantics::map_add(frame, map, key, value);
}

}  // namespace bolt::observe

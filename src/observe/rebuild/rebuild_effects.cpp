// observe/rebuild/rebuild_effects.cpp
// See rebuild.h. What the run changed outside -> effects to repeat.
#include <algorithm>

#include "guard/iterators.h"
#include "interp/async_generator.h"
#include "observe/rebuild/rebuild.h"
#include "python/compat.h"

namespace bolt::observe {

void Rebuilder::dict_effect(int target, const Known& known, PyObject* now) {
  PyObject *before = known.before.get(), *keys = known.keys.get();
  for (PyObject* dict : {before, now})
    if (!World::has_plain_keys(dict)) {
      fail(now, "is written that has keys which Python code compares");
      return;
    }
  if (known.window.cleared) {
    std::vector<int> parts;
    const PyRef all = native_items(now);
    for (Py_ssize_t i = 0; all && i < PyList_GET_SIZE(all.get()); ++i) {
      PyObject* key = PyList_GET_ITEM(all.get(), i);
      parts.push_back(value(key));
      parts.push_back(value(PyDict_GetItemWithError(now, key)));
    }
    return recipe.effects.push_back({Effect::replace_dict, target, -1, -1, 0, std::move(parts)});
  }
  if (known.window.front) recipe.effects.push_back({Effect::cut, target, -1, -1, known.window.front, {}});
  auto repeat = [&](PyObject* key, Written how) {
    PyObject* item = PyDict_GetItemWithError(now, key);
    const int name = value(key);
    if (!item || how == Written::removed)
      recipe.effects.push_back({Effect::delete_item, target, name, -1, 0, {}});
    if (item && how != Written::moved) {
      const int inside = value(item);
      recipe.effects.push_back({Effect::set_item, target, name, inside, 0, {}});
    }
    if (item && (how == Written::moved || how == Written::moved_and_put))
      recipe.effects.push_back({Effect::move_to_end, target, name, -1, 0, {}});
  };
  Py_ssize_t position = 0;
  PyObject *key, *item;
  while (keys && PyDict_Next(keys, &position, &key, &item)) repeat(key, *written_as(item));
  if (PyODict_Check(now)) return;  // nothing else was written
  // What was not written key by key was read whole before.
  auto other = [&](PyObject* key) { return !keys || PyDict_Contains(keys, key) == 0; };
  position = 0;
  for (Py_ssize_t at = 0; PyDict_Next(before, &position, &key, &item); ++at)
    if (at >= known.window.front && other(key) && !PyDict_GetItemWithError(now, key))
      repeat(key, Written::removed);
  position = 0;
  while (PyDict_Next(now, &position, &key, &item))
    if (other(key) && PyDict_GetItemWithError(before, key) != item) repeat(key, Written::put);
}

/// One after another: where an element comes to lie depends on those that were there then.
void Rebuilder::set_effect(int target, const Known& known) {
  for (const auto& [element, puts] : known.elements) {
    const int name = value(element.get());
    recipe.effects.push_back({puts ? Effect::set_item : Effect::delete_item, target, name, -1, 0, {}});
  }
}

/// What was put at the ends of a list or deque, and how many items were taken there. False: that does not say
/// enough, so all of it was read.
bool Rebuilder::ends_effect(int target, const Known& known, bool is_noticed) {
  const Window& window = known.window;
  const auto [in_front, old, behind] = Lengths::parts_of(known);
  const bool changes = window.front || window.back || window.cleared || in_front || behind;
  if (is_noticed && !changes) return world_.read_whole(known.object.get()), false;
  const PyRef now = native_items(known.object.get());
  auto parts = [&](Py_ssize_t begin, Py_ssize_t end) {
    std::vector<int> values;
    for (Py_ssize_t i = begin; i < end; ++i) values.push_back(value(PyList_GET_ITEM(now.get(), i)));
    return values;
  };
  auto add = [&](Effect how, Py_ssize_t number, std::vector<int> items = {}) {
    recipe.effects.push_back({how, target, -1, -1, number, std::move(items)});
  };
  if (window.cleared) return add(Effect::replace, 0, parts(0, in_front + behind)), true;
  if (window.front) add(Effect::cut, window.front);
  if (window.back) add(Effect::cut, -window.back);
  for (const PyRef& index : known.placed) {
    const int name = value(index.get());
    const int inside = value(PyList_GET_ITEM(now.get(), PyLong_AsSsize_t(index.get())));
    recipe.effects.push_back({Effect::set_item, target, name, inside, 0, {}});
  }
  if (in_front) add(Effect::put_in_front, 0, parts(0, in_front));
  if (behind) add(Effect::extend, 0, parts(in_front + old, in_front + old + behind));
  return true;
}

/// Of an OrderedDict: do the keys that were written, and how many items went in front, say what became of its
/// order? Where it is as it was, iterators under way may still have to raise.
static bool order_is_told(PyObject* now, const Known& known, bool is_noticed) {
  if (known.read_whole || known.window.cleared) return known.window.cleared;
  bool changes = known.window.front;
  Py_ssize_t position = 0;
  PyObject *key, *mark;
  while (known.keys && PyDict_Next(known.keys.get(), &position, &key, &mark)) {
    const int is_there = PyDict_Contains(now, key);
    const Written how = *written_as(mark);
    changes |= how == Written::moved || how == Written::moved_and_put ||
               (how == Written::removed && is_there == 1) ||
               is_there != PyDict_Contains(known.before.get(), key);
  }
  return changes == is_noticed;
}

/// Are the set's elements those that it had before, in the same order? A write may make its table larger and
/// add none.
static bool is_as_found(PyObject* set, PyObject* before) {
  const PyRef now = native_items(set);
  return now &&
         std::equal(PySequence_Fast_ITEMS(now.get()),
                    PySequence_Fast_ITEMS(now.get()) + PyList_GET_SIZE(now.get()),
                    PySequence_Fast_ITEMS(before), PySequence_Fast_ITEMS(before) + PyList_GET_SIZE(before));
}

void Rebuilder::effect_on(PyObject* container, Known& known) {
  PyObject* before = known.before.get();
  int target = value(container);
  if (known.read_whole)
    world_.followed_keys.use_positions(known);  // the instruction that read it may have been taken back
  // Iterators that are under way raise for some writes, and must not for others.
  const bool counts = PyODict_Check(container) || is_deque(container);
  const bool is_cleared = PyODict_Check(container) && PyDict_GET_SIZE(container) < PyDict_GET_SIZE(before);
  const bool is_noticed = !counts || is_cleared || guard::noticed_writes(container) != known.noticed_writes;
  if (PyODict_Check(container) && order_is_told(container, known, is_noticed)) {
    dict_effect(target, known, container);
  } else if (PyODict_Check(container)) {  // its order is part of its value
    world_.read_whole(container);
    std::vector<int> parts;
    PyRef keys = native_items(container);
    for (Py_ssize_t i = 0; keys && i < PyList_GET_SIZE(keys.get()); ++i) {
      PyObject* key = PyList_GET_ITEM(keys.get(), i);
      const int name = value(key), inside = value(PyDict_GetItemWithError(container, key));
      if (is_noticed)
        parts.insert(parts.end(), {name, inside});
      else
        recipe.effects.push_back({Effect::set_item, target, name, inside, 0, {}});
    }
    if (is_noticed) recipe.effects.push_back({Effect::replace_dict, target, -1, -1, 0, std::move(parts)});
  } else if (PyDict_Check(container)) {
    dict_effect(target, known, container);
  } else if (PyCell_Check(container)) {
    recipe.effects.push_back({Effect::set_cell, target, -1, value(PyCell_GET(container)), 0, {}});
  } else {
    if (is_set(container) && known.keys && !known.read_whole) return set_effect(target, known);
    if (is_set(container) && is_as_found(container, before)) return;
    if (world_.lengths.known_by_ends(container) && ends_effect(target, known, counts && is_noticed)) return;
    PyRef now = native_items(container);
    Py_ssize_t old_size = PyList_Check(before) ? PyList_GET_SIZE(before) : -1;
    bool extended = PyList_Check(container) && old_size >= 0 && PyList_GET_SIZE(now.get()) >= old_size;
    for (Py_ssize_t i = 0; extended && i < old_size; ++i)
      extended = PyList_GET_ITEM(before, i) == PyList_GET_ITEM(now.get(), i);
    std::vector<int> parts;
    for (Py_ssize_t i = extended ? old_size : 0; i < PyList_GET_SIZE(now.get()); ++i)
      parts.push_back(value(PyList_GET_ITEM(now.get(), i)));
    if (extended && parts.empty()) return;
    const Effect how = !is_noticed ? Effect::set_items : extended ? Effect::extend : Effect::replace;
    recipe.effects.push_back({how, target, -1, -1, 0, std::move(parts)});
  }
}

void Rebuilder::effects() {
  // What they went through was written to afterwards, if at all (World::can_advance).
  for (const Advanced& each : world_.advanced)
    recipe.effects.push_back({Effect::advance, value(each.iterator.get()), -1, -1, each.times, {}});
  for (size_t i = 0; i < world_.writes.written.size(); ++i)
    effect_on(world_.writes.written[i], *world_.find(world_.writes.written[i]));
  for (const WrittenField& written : world_.writes.written_fields) {
    PyObject* object = written.object.get();
    PyObject* now = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + written.offset);
    int target = value(object), inside = value(now);
    recipe.effects.push_back({Effect::set_field, target, -1, inside, written.offset, {}});
  }
  for (const WrittenClass& written : world_.writes.written_classes) {
    auto* cls = reinterpret_cast<PyTypeObject*>(written.cls.get());
    const int target = value(written.cls.get()), name = value(written.name.get());
    const int inside = value(PyDict_GetItemWithError(type_dict(cls), written.name.get()));
    recipe.effects.push_back({Effect::set_class, target, name, inside, 0, {}});
  }
  for (const auto& [variable, before, restored, _] : world_.writes.written_context) {
    if (restored || tokens_.count(variable.get())) continue;
    PyObject* now = guard::context_value(variable.get());
    if (!now) fail(variable.get(), "is left unset by the region");
    int target = value(variable.get()), inside = value(now);
    recipe.effects.push_back({Effect::set_context, target, -1, inside, 0, {}});
  }
  for (const WrittenTensor& written : world_.writes.written_tensors) {
    const int target = value(written.tensor.get()), inside = value(written.value.get());
    recipe.effects.push_back({written.part, target, -1, inside, 0, {}});
  }
  for (PyObject* generator : world_.resumed) {
    int target = value(generator);
    if (interp::awaitable_kind(generator) != interp::Awaitable::none) {
      recipe.effects.push_back({Effect::awaitable, target, -1, -1, interp::awaitable_state(generator), {}});
      continue;
    }
    recipe.effects.push_back({Effect::generator, target, -1, -1, generator_state(generator), {}});
  }
  for (const PyRef& lock : world_.locks) {
    PyRef acquire = PyRef::steal(PyObject_GetAttrString(lock.get(), "acquire"));
    const int target = value(acquire.get());
    recipe.call_sites.emplace_back();
    recipe.effects.push_back(
        {Effect::call, target, -1, -1, static_cast<Py_ssize_t>(recipe.call_sites.size()) - 1, {}});
  }
  for (const DelayedCall& call : world_.calls) {
    std::vector<int> args;
    for (const PyRef& arg : call.args) args.push_back(value(arg.get()));
    CallSite site;
    for (const auto& [function, pc] : call.callers) site.emplace_back(value(function.get()), pc);
    recipe.call_sites.push_back(std::move(site));
    int target = value(call.callable.get()), names = value(call.kwnames.get());
    recipe.effects.push_back({Effect::call, target, names, -1,
                              static_cast<Py_ssize_t>(recipe.call_sites.size()) - 1, std::move(args)});
  }
}

}  // namespace bolt::observe

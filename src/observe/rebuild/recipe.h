// observe/rebuild/recipe.h
// What a recorded run made and changed -> Recipe: how to make such objects on a later call, and to repeat
// what was done to objects that were there before.
//
// A flat list of steps over numbered values. First every value is made (identity is kept: an object that
// occurs twice is made once; cycles are closed by filling containers after all are made), then the effects
// are applied in the order given. So a value that is re-read from a source shows the state before the
// effects, as guards saw it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "python/py_ref.h"

namespace bolt::observe {

enum class Make : uint8_t {
  constant,  ///< `object`
  source,    ///< object in register `number` of the check
  tensor,    ///< output `number` of the program; with `object`: made one of that class
  number,    ///< step `number` of the numbers that differ between calls
  tuple,     ///< of parts; with `object`: that tuple subclass (named tuples, torch.Size, struct sequences)
  list,      ///< with `object`: that list subclass
  dict,      ///< filled by `fill`; with `object`: that dict subclass
  set,       ///< with `object`: that set type
  frozenset,
  deque,  ///< `number`: maxlen or -1
  slice,
  function,     ///< parts: code, globals, name, qualname, closure; the rest is filled in
  method,       ///< parts: function, self
  cell,         ///< filled by fill
  partial,      ///< of the class `object`; parts: func, args, keywords
  instance,     ///< object.__new__(object), then filled
  call,         ///< parts[0](*parts[1:])
  set_context,  ///< the token of setting the ContextVar parts[0] to parts[1]
  exception,    ///< of the class `object` with args parts[0]; `number`: __suppress_context__. Its fields are
                ///< filled
  traceback,    ///< at code `object` with globals parts[0], then parts[1]; `number`: instruction << 32 | line
  generator,    ///< of the function parts[0], or one of code `object` that has ended; filled
  awaitable,    ///< of kind `number`, of the asynchronous generator parts[0], with parts[1] given; filled
  item,         ///< parts[0] as an asynchronous generator's `yield` wraps it
  format,       ///< parts[0] as text, as by FORMAT_VALUE with conversion `number` and spec parts[1]
  join,         ///< the strings parts, one after another
  interpolate,  ///< parts[0] % parts[1]; with `number`: parts[0].format(*parts[1:])
  iterator,     ///< of the type `object`, of flavour `number`, through the container parts[0] (iterators.h)
};

enum class Fill : uint8_t {
  append,     ///< list.append(container, value)
  item,       ///< container[key] = value (dict and subclasses: the dict item)
  add,        ///< set.add
  cell,       ///< contents
  attribute,  ///< into the instance dict
  field,      ///< slot at byte offset `number`
  state,      ///< container.__setstate__(value): a built-in iterator's position
  place,      ///< of one through a container: what guard::iterator_state said, value
  generator,  ///< stands as Recipe::generators[number] says
  awaitable,  ///< its state is `number`
  gradient,   ///< a tensor that requires one; the value is its .grad, if it has one
};

enum class Effect : uint8_t {
  set_item,      ///< dict (or instance dict, or globals), list: target[key] = value; set: target.add(key)
  delete_item,   ///< del target[key], where there is one; set: target.discard(key)
  extend,        ///< list, deque: append each of the parts
  put_in_front,  ///< list, deque: the parts, in order
  cut,           ///< list, deque, dict: `number` items go in front, or as many behind if negative
  move_to_end,   ///< OrderedDict: the key
  replace,       ///< list, set, deque: contents become the parts
  set_items,     ///< deque: the same, item by item, which its iterators do not notice
  set_cell,      ///< value -1: emptied
  set_field,     ///< slot at byte offset `number`
  set_class,     ///< a class's attribute `key`
  replace_dict,  ///< dict contents become the parts (key, value, ...), in that order
  set_context,   ///< ContextVar.set
  set_grad,      ///< .grad of a tensor
  set_data,      ///< .data of a tensor
  generator,     ///< stands as Recipe::generators[number] says
  awaitable,     ///< its state is `number`
  advance,       ///< an iterator: `number` items are taken, or it is over
  call,          ///< target(*parts), keyword names `key`, from Recipe::call_sites[number]
};

struct MakeStep {
  Make make;
  PyRef object;
  Py_ssize_t number = 0;
  std::vector<int> parts;  ///< values; -1: null
};
struct FillStep {
  Fill fill;
  int container = -1, key = -1, value = -1;
  Py_ssize_t number = 0;
  size_t after = 0;  ///< done once so many values are made: what is called with a container finds it filled
};
struct EffectStep {
  Effect effect;
  int target = -1, key = -1, value = -1;
  Py_ssize_t number = 0;
  std::vector<int> parts;
};

/// A suspended Python frame, as values. Innermost last. A generator's body has its state in the generator.
struct FrameRecipe {
  int function = -1;
  int generator = -1, awaitable = -1;
  int handled = -1;  ///< oldest frame: the exception being handled
  int instance = -1, namespace_dict = -1, kw_names = -1;
  int pc = 0;
  bool stays = false;  ///< it was there where the region began, at the same place in the run
  uint8_t return_to = 0;
  std::vector<int> locals, stack;  ///< -1: unbound
};

/// How far a generator has got (interp::GeneratorState), as values.
struct GeneratorRecipe {
  int8_t frame_state = 0;
  bool asked = false, closed = false, running = false;
  int pc = -1;
  int handled = -1;
  std::vector<int> locals, stack;
};

/// tensor.grad = value, whatever its class has set_attr do. -1 with an exception.
int set_grad(PyObject* tensor, PyObject* value);
/// tensor.data = value. -1 with an exception.
int set_data(PyObject* tensor, PyObject* value);

/// What FORMAT_VALUE gives, by CPython alone: `conversion` 0 none, 1 str, 2 repr, 3 ascii; `spec` may be
/// null. New.
PyObject* format_text(PyObject* value, int conversion, PyObject* spec);

/// Where a call stood: a function's value and its instruction, oldest first.
using CallSite = std::vector<std::pair<int, int>>;

struct Recipe {
  std::vector<MakeStep> makes;
  std::vector<FillStep> fills;
  std::vector<EffectStep> effects;
  std::vector<FillStep> positions;  ///< of iterators: set once what they go through is as the run left it
  int result = -1;                  ///< value returned
  std::vector<FrameRecipe> frames;  ///< region ended inside a call: where to go on
  std::vector<GeneratorRecipe> generators;
  std::vector<CallSite> call_sites;

  /// Makes everything, applies the effects. `objects` are Found::objects, `tensors` the program's outputs as
  /// Python tensors (both borrowed), `numbers` the steps of Numbers, of all phases. On success `values` holds
  /// one reference each and true is returned; false leaves an exception set and no effect applied.
  bool run(const std::vector<PyRef>& objects, PyObject* const* tensors, const std::vector<PyRef>& numbers,
           std::vector<PyRef>& values) const;

  /// run, and the result: new reference or null with an exception.
  PyObject* run_result(const std::vector<PyRef>& objects, PyObject* const* tensors,
                       const std::vector<PyRef>& numbers = {}) const;

  std::vector<std::string> describe() const;
};

}  // namespace bolt::observe

// observe/rebuild/rebuild_generators.cpp
// See rebuild.h. Generators of all kinds, and what asynchronous ones
// were asked with.
#include "interp/async_generator.h"
#include "interp/generator.h"
#include "interp/liveness.h"
#include "observe/ends/frames.h"
#include "observe/rebuild/rebuild.h"

namespace bolt::observe {

/// How far a generator has got; an index into recipe.generators.
Py_ssize_t Rebuilder::generator_state(PyObject* generator) {
  auto body = bodies_.find(generator);
  const interp::Frame* frame = body == bodies_.end() ? nullptr : body->second;
  GeneratorRecipe made;
  if (reinterpret_cast<PyGenObject*>(generator)->gi_frame_state == FRAME_EXECUTING && !frame)
    return fail(generator, "is running where the region ends");
  const interp::GeneratorState state = interp::generator_state(generator, frame);
  made.frame_state = state.frame_state;
  made.asked = state.asked;
  made.closed = state.closed;
  made.running = state.running;
  if (made.frame_state < FRAME_COMPLETED && !failure) {
    PyCodeObject* code = interp::generator_code(generator);
    made.pc = state.pc;
    made.handled = value(state.handled == Py_None ? nullptr : state.handled);
    const std::vector<bool>& live =
        interp::live_locals(code, *interp::prepare(code), state.pc, !frame || frame != innermost_);
    for (PyObject* local : kept_of(state.locals.data(), state.locals.size(), live))
      made.locals.push_back(value(local));
    for (PyObject* object : state.stack) made.stack.push_back(value(object));
  }
  recipe.generators.push_back(std::move(made));
  return static_cast<Py_ssize_t>(recipe.generators.size()) - 1;
}

int Rebuilder::generator_value(PyObject* object) {
  const bool over = reinterpret_cast<PyGenObject*>(object)->gi_frame_state >= FRAME_COMPLETED;
  PyObject* function = over ? nullptr
                            : reinterpret_cast<PyObject*>(raw_function(reinterpret_cast<RawFrame*>(
                                  reinterpret_cast<PyGenObject*>(object)->gi_iframe)));
  int body = value(function);
  int made = made_[object] =
      add(Make::generator, reinterpret_cast<PyObject*>(interp::generator_code(object)), 0, {body});
  fill({Fill::generator, made, -1, -1, generator_state(object)});
  return made;
}

int Rebuilder::awaitable_value(PyObject* object) {
  const auto kind = static_cast<Py_ssize_t>(interp::awaitable_kind(object));
  const int generator = value(interp::awaited_generator(object));
  const int given = value(interp::awaitable_given(object));
  const int made = made_[object] = add(Make::awaitable, nullptr, kind, {generator, given});
  fill({Fill::awaitable, made, -1, -1, interp::awaitable_state(object)});
  return made;
}

int Rebuilder::item_value(PyObject* object) {
  return add(Make::item, nullptr, 0, {value(interp::yielded_item(object))});
}

}  // namespace bolt::observe

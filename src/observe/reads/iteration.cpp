// observe/reads/iteration.cpp
// Iterating, unpacking, and what is sent to generators and awaited -> guards on what is iterated over, and
// the end of a region that would go on with a generator from outside. Where an iterator from outside stands
// is iterators.cpp's.

#include <algorithm>

#include "guard/iterators.h"
#include "interp/async_generator.h"
#include "interp/generator.h"
#include "observe/recording.h"
#include "python/slots.h"

namespace bolt::observe {

using interp::Semantics;

PyObject* Recording::get_iter(Frame& frame, PyObject* object) {
  if (on && guard::iterator_kind(object)) return Semantics::get_iter(frame, object);  // itself, whole
  const PyRef followed = on ? world.with_followed(object) : PyRef();
  if (followed) return Semantics::get_iter(frame, followed.get());
  if (on) {
    world.use_scalar(object);
    note_special(object, names_of.iter_);
    touch(frame, object);
    mark(frame);
  }
  PyObject* iterator = Semantics::get_iter(frame, object);
  if (on && iterator) note_given(frame, iterator);
  end_if_wanted(frame);
  return iterator;
}

interp::CallStart Recording::start_next(Frame& frame, PyObject* iterator) {
  if (on) {
    note_special(iterator, names_of.next_);
    if (PyGen_Check(iterator) && is_outside(iterator)) end_here(frame, Why::generator_advanced);
    const interp::CallStart start = on ? start_next_of_callback(frame, iterator) : interp::CallStart();
    if (!start.failed() || PyErr_Occurred()) return start;
  }
  return Semantics::start_next(frame, iterator);
}

PyObject* Recording::advance(Frame& frame, PyObject* iterator) {
  if (!on) return Semantics::advance(frame, iterator);
  note_special(iterator, names_of.next_);
  const bool found = is_outside(iterator) && !is_python_class(Py_TYPE(iterator));
  if (found && world.can_advance(iterator))
    world.about_to_advance(iterator);
  else if (found)
    end_here(frame, {Why::advanced, Py_TYPE(iterator)->tp_name});
  bool handled = false;
  PyObject* item = on ? next_seen(frame, iterator, &handled) : nullptr;
  if (!handled) item = Semantics::advance(frame, iterator);
  return on && found ? world.has_advanced(iterator, item) : item;  // otherwise the region has ended before
}

int Recording::unpack_sequence(Frame& frame, PyObject* sequence, int n, PyObject** out) {
  if (const PyRef followed = on ? world.with_followed(sequence) : PyRef())
    return Semantics::unpack_sequence(frame, followed.get(), n, out);
  if (on) {
    world.use_scalar(sequence);
    note_special(sequence, names_of.iter_);
    touch(frame, sequence);
    mark(frame);
  }
  int status = Semantics::unpack_sequence(frame, sequence, n, out);
  end_if_wanted(frame, PyIter_Check(sequence));
  return status;
}

int Recording::unpack_ex(Frame& frame, PyObject* sequence, int before, int after, PyObject** out) {
  if (const PyRef followed = on ? world.with_followed(sequence) : PyRef())
    return Semantics::unpack_ex(frame, followed.get(), before, after, out);
  if (on) {
    world.use_scalar(sequence);
    note_special(sequence, names_of.iter_);
    touch(frame, sequence);
    mark(frame);
  }
  return Semantics::unpack_ex(frame, sequence, before, after, out);
}

bool Recording::is_outside(PyObject* generator) {
  const auto& resumed = world.resumed;
  const bool is_resumed = std::find(resumed.begin(), resumed.end(), generator) != resumed.end();
  if (world.find(generator) && !is_resumed) return true;
  const bool hands_on = interp::awaitable_kind(generator) != interp::Awaitable::none;
  return hands_on && is_outside(interp::awaited_generator(generator));
}

PySendResult Recording::send(Frame& frame, PyObject* receiver, PyObject* value, PyObject** result) {
  if (on && !interp::is_only_advanced(receiver, value) && is_outside(receiver))
    end_here(frame, Why::generator_advanced);
  return Semantics::send(frame, receiver, value, result);
}

Frame* Recording::start_send(Frame& frame, PyObject* receiver, PyObject* value) {
  if (on && !interp::is_only_advanced(receiver, value) && is_outside(receiver))
    end_here(frame, Why::generator_advanced);
  return Semantics::start_send(frame, receiver, value);
}

/// What a future gives is C's, and cannot be made again.
PyObject* Recording::get_awaitable(Frame& frame, PyObject* object) {
  PyObject* iterator = Semantics::get_awaitable(frame, object);
  if (on && iterator && iterator != object) note_given(frame, iterator);
  return iterator;
}

}  // namespace bolt::observe

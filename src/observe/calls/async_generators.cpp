// observe/calls/async_generators.cpp
// What an asynchronous generator is asked for (anext, asend, athrow, aclose) -> the awaitable that C makes of
// it, noted. Their bodies run as those of other generators do, once somebody awaits that
// (interp/async_generator.h).
#include "interp/async_generator.h"
#include "interp/special.h"
#include "observe/calls/special_calls.h"

namespace bolt::observe {

// The first time C tells sys.set_asyncgen_hooks, and an event loop keeps all of them in a set.
void Recording::about_to_ask(Frame& frame, PyObject* generator) {
  if (!on || interp::was_asked(generator)) return;
  PyObject* const hooks = interp::asks_for_hooks();
  const PyRef waits = PyRef::steal(PyObject_CallNoArgs(hooks));
  if (world.find(generator) || waits.get() == Py_True) {
    end_here(frame, Why::async_generator);
  } else {
    const PyRef nothing = PyRef::steal(PyTuple_New(0));
    world.tree->constant(hooks)->assume_answer(nothing.get(), Py_False);
  }
}

PyObject* Recording::get_async_next(Frame& frame, PyObject* iterator) {
  if (PyAsyncGen_CheckExact(iterator)) about_to_ask(frame, iterator);
  return Semantics::get_async_next(frame, iterator);
}

namespace {

PyObject* ask_generator(const SpecialCall& c) {
  if (c.nargs && PyAsyncGen_CheckExact(c.args[0])) c.recording.about_to_ask(c.frame, c.args[0]);
  return nullptr;
}

/// anext(x), aiter(x): what C's own types do by themselves, or a method in Python.
template <PyObject* SpecialNames::* kName, unaryfunc PythonSlots::* kSlot,
          unaryfunc PyAsyncMethods::* kMethod>
PyObject* call_method(const SpecialCall& c) {
  if (c.nargs != 1 || c.kwnames) {
    c.recording.end_here(c.frame, Why::anext_default);
    return nullptr;
  }
  PyObject* object = c.args[0];
  const PyAsyncMethods* methods = Py_TYPE(object)->tp_as_async;
  if (methods && methods->*kMethod == python_slots.*kSlot)
    return interp::call_required(c.recording, c.frame, object, names_of.*kName, {});
  return ask_generator(c);
}

}  // namespace

void add_async_calls(SpecialCalls& table) {
  table.insert({
      {"builtins.aiter",
       call_method<&SpecialNames::aiter_, &PythonSlots::async_iter, &PyAsyncMethods::am_aiter>},
      {"builtins.anext",
       call_method<&SpecialNames::anext_, &PythonSlots::async_next, &PyAsyncMethods::am_anext>},
      {"async_generator.asend", ask_generator},
      {"async_generator.athrow", ask_generator},
      {"async_generator.aclose", ask_generator},
      {"async_generator.__anext__", ask_generator},
  });
}

}  // namespace bolt::observe

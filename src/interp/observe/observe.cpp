// interp/observe/observe.cpp: see observation.h.
//
// The order at the end matters: recipes are made first (they give registers to sources), then the tree of
// sources becomes a program, then the program is asked about the very objects that were recorded.

#include <algorithm>

#include "interp/frame.h"
#include "interp/observe/rebuild.h"
#include "interp/observe/recording.h"

namespace bolt::observe {
namespace {

std::vector<SourceLine> stack_of(const Frame* frame) {
  std::vector<SourceLine> lines;
  for (; frame; frame = frame->return_to == interp::ReturnTo::entry ? nullptr : frame->back)
    lines.push_back({PyUnicode_AsUTF8(frame->code()->co_filename), PyUnicode_AsUTF8(frame->code()->co_name),
                     frame->lineno()});
  std::reverse(lines.begin(), lines.end());
  return lines;
}

PyObject* function_of(PyObject* callable) {
  if (PyMethod_Check(callable)) return PyMethod_GET_FUNCTION(callable);
  return callable;
}

/// Names for messages: the callable's own, and its parameters'.
std::vector<std::string> root_names(PyObject* callable, size_t nargs, PyObject* kwnames) {
  std::vector<std::string> names;
  PyObject* function = function_of(callable);
  if (PyFunction_Check(function)) {
    auto* object = reinterpret_cast<PyFunctionObject*>(function);
    names.push_back(PyUnicode_AsUTF8(object->func_name));
    PyRef parameters = PyRef::steal(PyCode_GetVarnames(reinterpret_cast<PyCodeObject*>(object->func_code)));
    auto* code = reinterpret_cast<PyCodeObject*>(object->func_code);
    Py_ssize_t skip = PyMethod_Check(callable) ? 1 : 0;
    for (size_t i = 0; i < nargs; ++i) {
      Py_ssize_t at = static_cast<Py_ssize_t>(i) + skip;
      names.push_back(at < code->co_argcount ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(parameters.get(), at)) : "");
    }
  } else {
    names.push_back("self");
    names.resize(nargs + 1);
  }
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i)
    names.push_back(PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i)));
  return names;
}

/// Holds an exception aside.
struct Raised {
  PyObject* exception = PyErr_Occurred() ? interp::take_raised() : nullptr;
  ~Raised() {
    if (exception) interp::set_raised(exception);
  }
};

}  // namespace

void Recording::end_if_wanted(Frame& frame) {
  if (!on) return;
  const char* why = hooks_.wants_end();
  if (why) end_here(frame, why);
}

void Recording::end_here(Frame& frame, const std::string& why, bool drop_instruction) {
  if (!on) return;
  Raised raised;
  if (!drop_instruction || !hooks_.wants_end()) mark(frame);
  hooks_.end_region(true);
  breaks.push_back({why, stack_of(&frame)});
  Rebuilder rebuilder(world, hooks_);
  std::vector<const Frame*> frames;
  const Frame* at = &frame;
  while (at->return_to != interp::ReturnTo::entry && at->back) {
    frames.push_back(at);
    at = at->back;
  }
  frames.push_back(at);
  if (at != entry) world.distrust("the region ends inside Python code called from C: " + why);
  std::reverse(frames.begin(), frames.end());
  for (const Frame* each : frames) rebuilder.frame(*each);
  rebuilder.effects();
  if (!rebuilder.failure.empty()) world.distrust(rebuilder.failure + " where the region ends: " + why);
  on = false;
  broken_off = std::make_unique<guard::Recipe>(std::move(rebuilder.recipe));
}

void Recording::enter_frame(Frame& frame) {
  if (!entry) entry = &frame;
}

std::unique_ptr<Observation> observe_call(PyObject* callable, PyObject* const* args, size_t nargs,
                                          PyObject* kwnames, RecorderHooks& hooks, PyObject** result) {
  auto observation = std::make_unique<Observation>();
  size_t total = nargs + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  Recording recording(hooks);
  World& world = recording.world;
  guard::ThreadState thread = guard::ThreadState::now();
  world.tree->root_names = root_names(callable, nargs, kwnames);
  world.reached(callable, world.tree->root(0));
  for (size_t i = 0; i < total; ++i) world.reached(args[i], world.tree->root(static_cast<Py_ssize_t>(i + 1)));

  *result = interp::call_function(callable, args, nargs, kwnames, recording);

  Raised raised;
  if (recording.broken_off) {
    observation->end = End::broke;
    observation->recipe = std::move(*recording.broken_off);
  } else {
    hooks.end_region(false);
    observation->end = *result ? End::returned : End::raised;
    if (*result) {
      Rebuilder rebuilder(world, hooks);
      rebuilder.recipe.result = rebuilder.value(*result);
      rebuilder.effects();
      if (!rebuilder.failure.empty()) world.distrust(rebuilder.failure);
      observation->recipe = std::move(rebuilder.recipe);
    }
    if (!(guard::ThreadState::now() == thread)) world.distrust("thread state is left changed");
  }
  observation->breaks = std::move(recording.breaks);
  observation->unsound = world.unsound;
  if (observation->end == End::raised) return observation;
  observation->guards =
      std::make_unique<guard::Program>(std::move(world.tree), std::move(world.tensors), thread);
  if (observation->end == End::returned && observation->recipe.effects.empty() &&
      observation->unsound.empty()) {
    std::vector<PyObject*> roots = {callable};
    roots.insert(roots.end(), args, args + total);
    std::string why = observation->guards->explain_failure(roots.data(), roots.size());
    if (!why.empty()) observation->unsound = "what was read changed during the run: " + why;
  }
  return observation;
}

int init_observe() { return 0; }

}  // namespace bolt::observe

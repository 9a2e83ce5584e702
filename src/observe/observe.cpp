// observe/observe.cpp
// See observation.h. A call -> its result, and the Observation of it.
//
// The order at the end matters: recipes are made first (they give registers to sources), then the tree of
// sources becomes a program, then, where that is wanted, the program is asked about the very objects that
// were recorded.

#include <algorithm>

#include "guard/transforms.h"
#include "interp/frame.h"
#include "observe/calls/controls.h"
#include "observe/calls/native_watch.h"
#include "observe/calls/torch_marks.h"
#include "observe/ends/frames.h"
#include "observe/rebuild/rebuild.h"
#include "observe/recording.h"
#include "observe/writes/give_back.h"

namespace bolt::observe {
namespace {

/// The line in progress; where that is torch's own, the user's that led there.
std::string users_line() {
  const Frame* innermost = interp::current_frame();
  if (!innermost) return "";
  const Frame* at = users_frame(innermost);
  const StackLine line = line_of(at->code(), at->pc());
  return line.file + ":" + std::to_string(line.line) + " in " + line.function;
}

PyObject* function_of(PyObject* callable) {
  if (PyMethod_Check(callable)) return PyMethod_GET_FUNCTION(callable);
  return callable;
}

/// What a module is called with are the arguments of its forward, whoever hands them on.
PyCodeObject* code_of_forward(PyObject* module) {
  PyObject* forward = _PyType_Lookup(Py_TYPE(module), interned<"forward">());
  return forward && PyFunction_Check(forward)
             ? reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(forward)->func_code)
             : nullptr;
}

/// Names for messages: the callable's own, and its parameters'.
std::vector<std::string> root_names(PyObject* callable, PyObject* const* args, size_t nargs,
                                    PyObject* kwnames) {
  std::vector<std::string> names;
  PyObject* function = function_of(callable);
  if (PyFunction_Check(function)) {
    auto* object = reinterpret_cast<PyFunctionObject*>(function);
    names.push_back(PyUnicode_AsUTF8(object->func_name));
    auto* code = reinterpret_cast<PyCodeObject*>(object->func_code);
    if (PyCodeObject* forward =
            nargs && names[0] == "_wrapped_call_impl" ? code_of_forward(args[0]) : nullptr)
      code = forward;
    PyRef parameters = PyRef::steal(PyCode_GetVarnames(code));
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

}  // namespace

Recording::Recording(RecorderHooks& hooks)
    : world(hooks, watch_instructions), outer_levels_(guard::transform_levels()), hooks_(hooks) {
  world.notes->line = users_line;
  watch_instructions = notes_attributes = true;
  counts_stops = true;
  if (hooks.may_idle()) watches_from = kIdle;
  look_up_torch_marks();
  hooks.on_escape = [this] {
    if (!on || !interp::current_frame()) return;
    escaped_at_ = outermost(*interp::current_frame());
    watch_instructions = true;
  };
  world.is_recorded = [this] { return on; };
  world.end_region = [this](const Reason& why) {
    if (on)
      end_here(*interp::current_frame(), why);
    else if (!broken_off)
      world.distrust(why.text());
  };
}

StackLine line_of(PyCodeObject* code, int pc) {
  StackLine at{PyUnicode_AsUTF8(code->co_filename), PyUnicode_AsUTF8(code->co_name)};
  const int offset = pc * static_cast<int>(sizeof(CodeUnit));
  if (!PyCode_Addr2Location(code, offset, &at.line, &at.column, &at.end_line, &at.end_column))
    at.line = PyCode_Addr2Line(code, offset);
  return at;
}

void Recording::enter_frame(Frame& frame) {
  if (entry) return;
  entry = &frame;
}

void Recording::begins_in(Frame& innermost) {
  for (Frame* frame : frames_of(innermost)) {
    frame->observer = &world;
    if (is_watched(*frame, innermost)) watched_.push_back(frame);
  }
}

namespace {

/// The numbers and texts that C code meets where it is given `object` to hash, add or compare: itself, or the
/// items of a pair.
void use_given(World& world, PyObject* object) {
  world.use_scalar(object);
  if (!PyTuple_CheckExact(object) && !PyList_CheckExact(object)) return;
  for (Py_ssize_t i = 0; i < Py_SIZE(object); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(object, i);
    PyTuple_CheckExact(item) ? world.use(item) : world.use_scalar(item);
  }
}

}  // namespace

void Recording::leave_frame(Frame& frame, PyObject* result) {
  if (on && reads_given_ && result && frame.return_to == interp::ReturnTo::entry &&
      interp::bottom_of(frame) != entry)
    use_given(world, result);
  // Its object tells from then on where it returned and what it held; in a later call the frame stands still.
  if (on && std::find(watched_.begin(), watched_.end(), &frame) != watched_.end())
    not_past(reinterpret_cast<PyObject*>(frame.code()), frame.pc(), Why::frame_returns);
}

namespace {

/// Is one of the iterators that the region advanced still in a frame?
bool is_in_loop(const World& world, const Frame* innermost) {
  bool found = false;
  auto look = [&](PyObject* object) {
    for (const Advanced& each : world.advanced) found |= each.last < 0 && each.iterator.get() == object;
  };
  if (innermost && !world.advanced.empty()) for_each_slot(*innermost, look);
  return found;
}

/// What was recorded, once the run has returned or stands still.
std::unique_ptr<Observation> finish(Recording& recording, const guard::ThreadState& before,
                                    const std::vector<PyObject*>& roots, Ran& ran) {
  auto observation = std::make_unique<Observation>();
  World& world = recording.world;
  RecorderHooks& hooks = recording.hooks();
  ran.suspended = recording.suspended;
  observation->before = before;
  const RaisedAside raised;
  if (recording.broken_off) {
    observation->end = End::broke;
    observation->recipe = std::move(*recording.broken_off);
    observation->after = recording.after;
    observation->instructions = recording.recorded;
    observation->last = std::move(recording.broken_off_at);
  } else {
    recording.end_where_escaped(nullptr);
    hooks.end_region(false);
    observation->end = ran.result ? End::returned : End::raised;
    observation->instructions = recording.instructions;
    recording.on = recording.notes_attributes = false;
    if (ran.result) {
      recording.check_awaited();
      recording.check_raised();
      Rebuilder rebuilder(world, hooks);
      rebuilder.recipe.result = rebuilder.value(ran.result);
      rebuilder.effects();
      if (rebuilder.failure) recording.cannot_describe(*rebuilder.failure, rebuilder.failed_on, nullptr);
      observation->recipe = std::move(rebuilder.recipe);
    }
    observation->after = guard::ThreadState::now();
    recording.autocast_levels += guard::ThreadState::autocast_levels();
    if (!observation->after.can_follow(before)) recording.left_changed(Why::thread_left_changed);
    if (!recording.flags.are_as_before()) recording.left_changed(Why::flag_left_changed);
  }
  for (const Advanced& each : world.advanced)
    if (each.last < 0) observation->advanced = std::max(observation->advanced, each.times);
  observation->idle = recording.idle;
  observation->ended_in_its_loop = is_in_loop(world, ran.suspended);
  observation->autocast_levels = recording.autocast_levels;
  observation->breaks = std::move(recording.breaks);
  observation->undo = world.writes.undo();
  observation->retry = recording.retry;
  give_numbers_back(world, nullptr, nullptr, ran.result);
  if (world.open_numbers.asked_open())
    world.distrust("something asked what a number is that only the run knows");
  observation->unsound = world.unsound;
  const bool reads_written = world.reads_written_number();
  observation->size_facts = world.notes->facts;
  observation->number_sizes = world.number_sizes;
  observation->number_symbols = world.number_symbols;
  observation->generators = world.generators;
  if (observation->end == End::raised) {
    if (!recording.told_compiling) return observation;
    observation->trace = hooks.trace();
    if (observation->trace->empty()) observation->trace = world.writes.trace();
    return observation;
  }
  for (guard::NumberStep& step : world.numbers.steps) {
    if (!guard::is_of_output(step)) continue;
    const int output = hooks.output(world.open_numbers.data[static_cast<size_t>(step.kind)].get());
    if (output < 0) world.distrust("a number was taken out of a tensor that is not known");
    step.kind = output;
  }
  observation->unsound = world.unsound;
  if (world.asked_offsets || hooks.placed())
    world.tensors.fix_offsets();
  else if (world.tensors.any_share())
    world.tensors.forget_sharing(hooks.memory_matters(world.tensors.size()));
  for (const auto& [slot, dims] : hooks.unread_sizes()) world.tensors.set_free(slot, dims);
  if (!world.asked_gradients && !hooks.differentiates()) world.tensors.ignore_gradients();
  if (observation->end == End::returned) world.keep_apart();
  observation->guards =
      std::make_unique<guard::Program>(std::move(world.tree), std::move(world.tensors), before);
  // What is computed from sizes of tensors that the region makes waits for their expressions over its inputs.
  const bool can_compute = observation->number_sizes.empty();
  if (can_compute) observation->guards->follow_numbers(std::move(world.numbers));
  // Where the run left everything as it was, its guards hold now. Otherwise the next call finds that out.
  const bool changed_nothing = observation->end == End::returned && observation->recipe.effects.empty() &&
                               observation->after == before && !hooks.changed_inputs() && !reads_written &&
                               observation->unsound.empty() && !roots.empty();
  if (changed_nothing && hooks.proves_guards()) {
    guard::Found found;
    if (!observation->guards->check(roots.data(), roots.size(), found))
      observation->unsound = "what was read changed during the run: " +
                             observation->guards->explain_failure(roots.data(), roots.size());
  }
  if (!can_compute) observation->guards->follow_numbers(std::move(world.numbers));
  return observation;
}

}  // namespace

std::unique_ptr<Observation> observe_call(PyObject* callable, PyObject* const* args, size_t nargs,
                                          PyObject* kwnames, RecorderHooks& hooks, Ran& ran) {
  const size_t total = nargs + interp::keyword_count(kwnames);
  Recording recording(hooks);
  World& world = recording.world;
  guard::ThreadState thread = guard::ThreadState::now();
  world.tree->root_names = root_names(callable, args, nargs, kwnames);
  world.reached(callable, world.tree->root(0));
  std::vector<PyObject*> given;  // held by the caller, or by World
  for (size_t i = 0; i < total; ++i)
    given.push_back(world.found(args[i], world.tree->root(static_cast<Py_ssize_t>(i + 1))));
  // A class's call does more after its Python frame than the frame tells.
  recording.resumable = !PyType_Check(callable);
  {
    const NativeWatch watch(hooks, [&](const std::string& function, bool in_operator) {
      recording.met_unseen(function, in_operator);
    });
    ran.result = interp::call_function(callable, given.data(), nargs, kwnames, recording);
  }
  std::vector<PyObject*> roots = {callable};
  roots.insert(roots.end(), args, args + total);
  auto seen = finish(recording, thread, roots, ran);
  if (seen->guards) seen->guards->recorded_with(std::move(roots));
  return seen;
}

namespace {

/// Gives every number and text in the frames an address of its own, so that it can be told apart
/// (World::carried).
void own_numbers(World& world, Frame& innermost) {
  for_each_slot(innermost, [&](PyObject*& slot) {
    if (!can_be_followed(slot)) return;
    PyObject* mine = own_number(slot);
    if (!mine) return PyErr_Clear();
    world.stands_for(mine, slot);
    Py_SETREF(slot, mine);
  });
}

}  // namespace

std::unique_ptr<Observation> observe_frames(Frame& innermost, RecorderHooks& hooks, Ran& ran) {
  Recording recording(hooks);
  World& world = recording.world;
  guard::ThreadState thread = guard::ThreadState::now();
  world.tree->root_names = root_names_of(innermost);
  Py_ssize_t index = 0;
  own_numbers(world, innermost);
  std::vector<PyObject*> roots = roots_of(innermost);
  for (PyObject* object : roots) {
    guard::Source* root = world.tree->root(index++);
    if (!object) {
      root->assume(guard::Check::unbound);
    } else if (PyObject* mine = world.carried(object, root); mine != object) {
      for_each_slot(innermost, [&](PyObject*& slot) {
        if (slot == object) Py_SETREF(slot, Py_NewRef(mine));
      });
    }
  }
  recording.begins_in(innermost);
  // What a frame reads without asking: its function's globals, defaults and cells.
  for (const Frame* frame : frames_of(innermost)) {
    world.note_function(reinterpret_cast<PyObject*>(frame->func()));
    if (frame->generator) world.resumed.push_back(frame->generator);
    if (frame->awaitable) world.resumed.push_back(frame->awaitable);
  }
  {
    const NativeWatch watch(hooks, [&](const std::string& function, bool in_operator) {
      recording.met_unseen(function, in_operator);
    });
    ran.result = interp::run_frame(innermost, recording);
  }
  auto seen = finish(recording, thread, {}, ran);  // the roots may be gone
  if (seen->guards) seen->guards->recorded_with(std::move(roots));
  return seen;
}

bool& says_compiling() {
  thread_local bool says = true;
  return says;
}

int init_observe() { return 0; }

}  // namespace bolt::observe

// program/callable.cpp: see compiled.h. A call from the first guard to the result, and the Python type.
#include "program/callable.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <structmember.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "interp/observe/torch_marks.h"
#include "interp/run.h"
#include "program/background.h"
#include "program/compiled.h"
#include "program/exceptions.h"
#include "program/settings.h"
#include "program/stats.h"
#include "record/recorder.h"
#include "support/log.h"

namespace bolt::program {
namespace {

constexpr std::pair<const char*, Stance> kTorchsStances[] = {
    {"force_eager", Stance::force_eager},
    {"eager_on_recompile", Stance::eager_on_recompile},
    {"fail_on_recompile", Stance::fail_on_recompile},
    {"eager_then_compile", Stance::eager_then_compile},
    {"aot_eager_then_compile", Stance::eager_then_compile},
};

Stance& own_stance() {
  static thread_local Stance now = Stance::standard;
  return now;
}

/// What torch.compiler.set_stance says, if that was ever called: an object for each call of it. Its backends
/// are for torch's own compiler.
Stance torchs_stance() {
  static PyRef& known = *new PyRef();  // there is no Python any more where statics are destroyed
  static Stance stance = Stance::standard;
  PyObject* now = observe::loaded_attribute("torch._dynamo.eval_frame", "_stance");
  if (!now || now == known.get()) return now ? stance : Stance::standard;
  known = PyRef::share(now);
  stance = Stance::standard;
  PyRef name = PyRef::steal(PyObject_GetAttrString(now, "stance"));
  for (const auto& [text, meant] : kTorchsStances)
    if (name && PyUnicode_Check(name.get()) && PyUnicode_CompareWithASCIIString(name.get(), text) == 0)
      stance = meant;
  if (PyErr_Occurred()) PyErr_Clear();
  return stance;
}

Compiled* self_of(PyObject* o) { return reinterpret_cast<Compiled*>(o); }

/// What guards and the target are given: the target, then the arguments.
class Roots {
 public:
  Roots(const Compiled* self, PyObject* const* args, size_t total) : size_(total + 1) {
    if (size_ > kSmall) {
      large_.resize(size_);
      data_ = large_.data();
    }
    data_[0] = self->target;
    std::copy(args, args + total, data_ + 1);
    if (self->receiver && total && PyObject_TypeCheck(args[0], PyDescr_TYPE(self->receiver)))
      if (PyObject* inner = observe::member_of(args[0], self->receiver)) data_[1] = inner;
  }
  Roots(const Roots&) = delete;

  PyObject* const* data() const { return data_; }
  PyObject* const* args() const { return data_ + 1; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kSmall = 16;
  PyObject* small_[kSmall];
  std::vector<PyObject*> large_;
  PyObject** data_ = small_;
  size_t size_;
};

PyObject* call_target(Compiled* self, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  return PyObject_Vectorcall(self->target, args, nargs, kwnames);
}

/// Of torchbolt.api, where the options are.
PyObject* in_python(const char* function, PyObject* self, PyObject* argument = nullptr) {
  PyRef api = PyRef::steal(import_module("torchbolt.api"));
  PyRef called = PyRef::steal(api ? PyObject_GetAttrString(api.get(), function) : nullptr);
  return called ? PyObject_CallFunctionObjArgs(called.get(), self, argument, nullptr) : nullptr;
}

/// The frames of a recipe as a run that stands at the instruction which ended the region.
interp::Frame* suspended_run(const guard::Recipe& recipe, const std::vector<PyRef>& values) {
  auto value = [&](int at) { return at < 0 ? nullptr : Py_NewRef(values[static_cast<size_t>(at)].get()); };
  interp::Frame* innermost = nullptr;
  for (const guard::FrameRecipe& made : recipe.frames) {
    interp::FrameState state;
    state.function = value(made.function);
    state.generator = value(made.generator);
    state.handled = value(made.handled);
    state.namespace_dict = value(made.namespace_dict);
    state.instance = value(made.instance);
    state.kw_names = value(made.kw_names);
    for (int at : made.locals) state.locals.push_back(value(at));
    for (int at : made.stack) state.stack.push_back(value(at));
    state.pc = made.pc;
    state.return_to = innermost ? static_cast<interp::ReturnTo>(made.return_to) : interp::ReturnTo::entry;
    state.call_started = &made != &recipe.frames.back();
    interp::Frame* frame = interp::restore(state, innermost);
    if (!frame) {
      if (innermost) interp::discard_run(innermost);
      return nullptr;
    }
    innermost = frame;
  }
  return innermost;
}

/// As item() gives it. New, null with an exception.
PyObject* element_of(PyObject* tensor, int64_t element) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  const at::Scalar number = (t.dim() == 0 ? t : t.flatten()[element]).item();
  return number.isFloatingPoint() ? PyFloat_FromDouble(number.toDouble())
                                  : PyLong_FromLongLong(number.toLong());
}

/// Runs an entry whose guards have just held. Throws RunEagerly before anything can be seen of it.
Outcome run_entry(const Entry& entry, guard::Found& found) {
  Outcome outcome;
  auto run = [&]() -> PyObject* {
    HANDLE_TH_ERRORS
    std::vector<at::Tensor> inputs;
    inputs.reserve(entry.tape_input_slot.size());
    for (int slot : entry.tape_input_slot)
      inputs.push_back(slot < 0
                           ? at::Tensor()
                           : at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::unsafe_reclaim_from_nonowning(
                                 found.tensors[slot])));
    const std::vector<PyRef>& objects = found.objects;
    std::vector<PyRef>& numbers = found.numbers;
    const guard::Numbers& steps = entry.guards->numbers();
    const guard::Generators generators =
        entry.region->can_fail() ? guard::Generators(steps, numbers) : guard::Generators();
    if (!steps.go_on(guard::Phase::early, numbers)) return nullptr;
    std::vector<int64_t> values;
    for (const autograd::SizeSymbol& s : entry.region->symbols())
      if (s.input == autograd::SizeSymbol::kNumber)
        guard::symbol_value(numbers[static_cast<size_t>(s.dim)].get(), &values.emplace_back());
    std::vector<at::Tensor> outputs;
    try {
      if (entry.region->releases_gil()) {
        pybind11::gil_scoped_release no_gil;
        outputs = entry.region->run(inputs, values);
      } else {
        outputs = entry.region->run(inputs, values);
      }
    } catch (const RunEagerly&) {
      generators.put_back();
      throw;
    }
    std::vector<PyRef> tensors;
    std::vector<PyObject*> borrowed;
    for (at::Tensor& t : outputs) {
      tensors.push_back(PyRef::steal(THPVariable_Wrap(std::move(t))));
      borrowed.push_back(tensors.back().get());
    }
    auto taken = [&](const guard::NumberStep& step) {
      PyObject* output = borrowed[static_cast<size_t>(step.kind)];
      return step.op == guard::NumberOp::data
                 ? element_of(output, step.element)
                 : PyLong_FromLongLong(THPVariable_Unpack(output).size(step.element));
    };
    if (!steps.go_on(guard::Phase::late, numbers, taken)) return nullptr;
    // Operators that the recipe calls (x[mask]) were called in the state that the region began in.
    auto leave = [&] {
      if (entry.changes_thread) entry.after.enter(entry.autocast_levels);
    };
    if (entry.recipe.frames.empty()) {
      PyObject* result = entry.recipe.run_result(objects, borrowed.data(), numbers);
      return leave(), result;
    }
    std::vector<PyRef> made;
    if (!entry.recipe.run(objects, borrowed.data(), numbers, made)) return nullptr;
    leave();
    outcome.frames = suspended_run(entry.recipe, made);
    return nullptr;
    END_HANDLE_TH_ERRORS
  };
  outcome.result = run();
  return outcome;
}

/// Room for what a call's guards find. It is the call's own: whoever lets go of a tensor may lose the GIL for
/// a moment, and another thread calls the same function meanwhile. The next call uses its memory again.
struct Finding {
  explicit Finding(Compiled* compiled) : self(compiled), found(std::move(compiled->state->found)) {}
  ~Finding() {
    let_go();
    self->state->found = std::move(found);
  }
  /// What the program drops from here on is gone at once.
  void let_go() {
    found.objects.clear();
    found.numbers.clear();
  }
  Finding(const Finding&) = delete;

  Compiled* self;
  guard::Found found;
};

/// The entry of `site` that fits, moved to the front.
std::shared_ptr<Entry> find_entry(Site& site, const Given& given, guard::Found& found) {
  auto& entries = site.entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    std::shared_ptr<Entry> entry = entries[i];
    if (!has_form_of(given, *entry) || !entry->guards->check(given.roots, given.count, found)) continue;
    if (i > 0 && i < entries.size() && entries[i] == entry)
      std::rotate(entries.begin(), entries.begin() + i, entries.begin() + i + 1);
    return entry;
  }
  return nullptr;
}

/// The entry of `site` that fits once what the background has compiled is taken over: which sizes an entry
/// leaves open is known only then. One without a region: it is still being compiled, and fits or may come to.
/// Null with an exception: a compilation failed, in strict mode.
std::shared_ptr<Entry> find_settled(Compiled* self, Site& site, const Given& given, guard::Found& found) {
  auto fits = find_entry(site, given, found);
  if (fits && (fits->region || !fits->pending)) return fits;
  for (const auto& each : std::vector(site.entries))
    if (!settle(self, site, each)) return nullptr;
  if (!fits) fits = find_entry(site, given, found);
  if (fits) return fits;
  auto may_fit = [&](const auto& each) {
    return each->pending && each->pending->leaves_open && has_form_of(given, *each);
  };
  const auto open = std::find_if(site.entries.begin(), site.entries.end(), may_fit);
  return open == site.entries.end() ? nullptr : *open;
}

/// Runs an entry whose guards have just held. False: what it found out on the way is not what it was compiled
/// for, and it is eager's turn. Where that is often so, regions had better end where sizes are data.
bool run_settled(Compiled* self, Site& site, const std::shared_ptr<Entry>& entry, guard::Found& found,
                 Outcome& at) {
  constexpr int kUnfit = 4, kMostUnfit = 16;
  try {
    at = run_entry(*entry, found);
  } catch (const RunEagerly& why) {
    note_eager_call(self, why.why);
    if (why.of_data && (entry->unfit += kUnfit) > kMostUnfit) {
      give_up_found_sizes(self, why.why);
      std::erase(site.entries, entry);
    }
    return false;
  }
  if (entry->unfit > 0) --entry->unfit;
  return true;
}

/// `signalled`: an exception that a signal's handler raised is set, and the run meets it first.
PyObject* run_plainly(interp::Frame* innermost, bool signalled = false) {
  static interp::PlainSemantics plain;
  return interp::run_frame(*innermost, plain, signalled);
}

/// So many instructions in the interpreter.
Outcome step(interp::Frame* innermost, int64_t instructions) {
  observe::Step steps(instructions);
  PyObject* result = interp::run_frame(*innermost, steps);
  return {result, steps.suspended};
}

/// Sees whether a run meets an operator, and keeps none.
struct Witness {
  record::Recorder recorder;
  record::Recorder::Scope scope{recorder};
  Witness() { recorder.stop(false); }
};

/// What the site says of runs that no entry fits: they are led by `run`, given the interpreter's orders. One
/// that meets an operator after all has the next one recorded.
template <class Run>
Outcome run_as_before(Site& site, Run run) {
  observe::Step steps(site.plain_instructions, &site.plain_end);
  // Up to the region's end the same instructions run as before; what comes after it is not known.
  std::optional<Witness> witness;
  if (site.plain_instructions == observe::Step::kToTheEnd) witness.emplace();
  PyObject* result = run(steps);
  if (witness && witness->recorder.met_operator()) site.plain_instructions = 0;
  // A recording takes some of C's loops over Python apart: where there was one, the number is of no use.
  if (steps.elsewhere) {
    site.plain_instructions = 0;
    site.never_plain = true;
  }
  return {result, steps.suspended};
}

Outcome step_at(Site& site, interp::Frame* innermost) {
  return run_as_before(site, [&](observe::Step& steps) { return interp::run_frame(*innermost, steps); });
}

Outcome step_into(Compiled* self, Site& site, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  return run_as_before(site, [&](observe::Step& steps) {
    return interp::call_function(self->target, args, nargs, kwnames, steps);
  });
}

Outcome step_into(Compiled* self, PyObject* const* args, size_t nargs, PyObject* kwnames,
                  int64_t instructions) {
  observe::Step steps(instructions);
  PyObject* result = interp::call_function(self->target, args, nargs, kwnames, steps);
  return {result, steps.suspended};
}

/// How far to run plainly at a site that takes no more entries: past its region, or to the end.
int64_t length_of(const Site& site) {
  int64_t length = site.entries.empty() ? 0 : site.entries.front()->instructions;
  return length > 0 ? length : observe::Step::kToTheEnd;
}

/// Sets RecompileError. True.
bool refuse(const Site& site, const Given& given, const std::string& why) {
  const std::string failed = failed_guard(site, given);
  set_exception("RecompileError",
                "torchbolt: nothing compiled fits this call and " + why + ". " +
                    (failed.empty() ? "Nothing was compiled before." : "The guard that failed: " + failed));
  return true;
}

/// True when the stance in force leaves a call that no entry fits to eager; with an exception set where it is
/// an error.
bool stance_forbids(Compiled* self, const Site& site, const Given& given) {
  switch (stance()) {
    case Stance::force_eager:
    case Stance::eager_on_recompile: return true;
    case Stance::eager_then_compile:
      if (!std::exchange(self->state->was_called, true)) return true;
      break;
    case Stance::fail_on_recompile: return refuse(site, given, "the stance is fail_on_recompile");
    case Stance::standard:
    case Stance::force_backend: break;
  }
  const bool again = !site.entries.empty();  // the first compilation is no recompilation
  return Settings::get().error_on_recompile && again &&
         refuse(site, given, "config.error_on_recompile is set");
}

/// Takes a run that stands after the instruction that ended a region to its result, region by region.
PyObject* go_on(Compiled* self, Outcome at) {
  while (at.frames) {
    interp::Frame* innermost = at.frames;
    // A loop that goes round in compiled regions would never get to the interpreter's own look at signals.
    if (PyErr_CheckSignals() < 0) return run_plainly(innermost, true);
    if (interp::thread_is_traced(PyThreadState_Get())) return run_plainly(innermost);
    if (guard::modes_run_python()) {
      observe::StepThroughModes steps;
      PyObject* result = interp::run_frame(*innermost, steps);
      at = {result, steps.suspended};
      continue;
    }
    // Held: another thread may have everything forgotten meanwhile.
    std::shared_ptr<Site>& place = self->state->sites[observe::place_of(*innermost)];
    if (!place) place = std::make_shared<Site>();
    const std::shared_ptr<Site> held = place;
    Site& site = *held;
    if (site.plain_instructions && site.entries.empty()) {
      at = step_at(site, innermost);
      continue;
    }
    const std::vector<PyObject*> roots = observe::roots_of(*innermost);
    const Given given{roots.data(), roots.size()};
    Finding finding(self);
    if (auto entry = find_settled(self, site, given, finding.found)) {
      if (!entry->region) return run_plainly(innermost);  // still being compiled
      if (!run_settled(self, site, entry, finding.found, at)) return run_plainly(innermost);
      if (at.result || at.frames)
        interp::replace_run(innermost);
      else
        interp::discard_run(innermost);
      finding.let_go();
      if (at.frames) at = step(at.frames, 1);
    } else if (PyErr_Occurred()) {
      interp::close_run(*innermost);
      return nullptr;
    } else if (site.plain_instructions) {
      at = step_at(site, innermost);
    } else if (stance_forbids(self, site, given)) {
      if (!PyErr_Occurred()) return run_plainly(innermost);
      interp::close_run(*innermost);
      return nullptr;
    } else if (is_full(self, site, given)) {
      if (PyErr_Occurred()) {
        interp::close_run(*innermost);
        return nullptr;
      }
      at = step(innermost, length_of(site));
    } else {
      note_recompile(self, site, given);
      at = record_frames(self, site, innermost);
    }
  }
  return at.result;
}

/// While it lives, a callable is told what it shall be when it asks for the compiler, and a region's end is
/// an error where the user said so in torch's words.
struct Answering {
  explicit Answering(bool says)
      : before(std::exchange(observe::says_compiling(), says)), breaks(observe::breaks_are_errors()) {
    observe::breaks_are_errors() = breaks || observe::torch_forbids_breaks();
  }
  ~Answering() {
    observe::says_compiling() = before;
    observe::breaks_are_errors() = breaks;
  }
  Answering(const Answering&) = delete;
  const bool before, breaks;
};

PyObject* compiled_call(PyObject* callable, PyObject* const* called_with, size_t nargsf, PyObject* kwnames) {
  Compiled* self = self_of(callable);
  const size_t nargs = PyVectorcall_NARGS(nargsf);
  const Roots roots(self, called_with, nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  const Given given{roots.data(), roots.size(), nargs, kwnames};
  PyObject* const* args = roots.args();
  const Stance now = stance();
  if (now == Stance::force_eager || Settings::get().disable) return call_target(self, args, nargs, kwnames);
  if (now == Stance::force_backend)
    if (PyRef twin = PyRef::steal(in_python("_twin", callable)); !twin || twin.get() != callable)
      return twin ? PyObject_Vectorcall(twin.get(), called_with, nargsf, kwnames) : nullptr;
  // Debuggers want to see every line, modes every operator.
  if (interp::thread_is_traced(PyThreadState_Get()) || guard::modes_run_python()) {
    note_eager_call(self, "a trace function or a mode wants to see every step");
    return call_target(self, args, nargs, kwnames);
  }
  // Inside somebody else's recording we are just a Python call.
  if (record::Recorder::current() && !record::Recorder::current()->stopped())
    return call_target(self, args, nargs, kwnames);

  Site& site = self->state->start;
  bool fits = false;
  Outcome at;
  if (!site.entries.empty()) {
    Finding finding(self);
    if (auto entry = find_settled(self, site, given, finding.found)) {
      if (!entry->region) return call_target(self, args, nargs, kwnames);  // still being compiled
      fits = run_settled(self, site, entry, finding.found, at);
      if (!fits) return call_target(self, args, nargs, kwnames);
    } else if (PyErr_Occurred()) {
      return nullptr;
    }
  }
  if (fits && !at.frames) return at.result;
  const Answering answering(self->state->says_compiling);
  if (fits) return go_on(self, step(at.frames, 1));
  if (site.plain_instructions) return go_on(self, step_into(self, site, args, nargs, kwnames));
  if (stance_forbids(self, site, given))
    return PyErr_Occurred() ? nullptr : call_target(self, args, nargs, kwnames);
  if (is_full(self, site, given)) {
    if (PyErr_Occurred()) return nullptr;
    if (self->state->sites.empty()) return call_target(self, args, nargs, kwnames);
    return go_on(self, step_into(self, args, nargs, kwnames, length_of(site)));
  }
  note_recompile(self, site, given);
  const RecordedCall recorded = record_call(self, args, nargs, kwnames);
  PyObject* result = go_on(self, recorded.outcome);
  settle_answer(self, recorded, !result);
  return result;
}

// ---- the type
// -----------------------------------------------------------------------------------------------

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"target",   "fullgraph", "background", "recompile_limit", "dynamic",
                                "name",     "road",      "backend",    "guard_filter",    "trace",
                                "receiver", "asked",     nullptr};
  PyObject *target, *dynamic = Py_None, *backend = Py_None, *guard_filter = Py_None, *receiver = Py_None;
  PyObject* asked = Py_None;
  int fullgraph = 0, background = 0, road = 0;
  Py_ssize_t limit = 0;
  const char *name = "", *trace = "";
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$ppnOsiOOsOO", const_cast<char**>(names), &target,
                                   &fullgraph, &background, &limit, &dynamic, &name, &road, &backend,
                                   &guard_filter, &trace, &receiver, &asked))
    return nullptr;
  if (receiver != Py_None && !Py_IS_TYPE(receiver, &PyMemberDescr_Type))
    return PyErr_SetString(PyExc_TypeError, "receiver is not a slot"), nullptr;
  Compiled* self = self_of(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  self->vectorcall = compiled_call;
  self->target = Py_NewRef(target);
  self->asked = Py_NewRef(asked);
  if (PyFunction_Check(target))
    if (PyObject* had = reinterpret_cast<PyFunctionObject*>(target)->func_dict)
      if (!(self->dict = PyDict_Copy(had))) return Py_DECREF(self), nullptr;
  if (receiver != Py_None) self->receiver = reinterpret_cast<PyMemberDescrObject*>(Py_NewRef(receiver));
  const auto which = dynamic == Py_None ? std::nullopt : std::optional(dynamic == Py_True);
  self->options = new Options{fullgraph != 0,
                              background != 0,
                              limit,
                              which,
                              name,
                              static_cast<Road>(road),
                              backend == Py_None ? PyRef() : PyRef::share(backend),
                              guard_filter == Py_None ? PyRef() : PyRef::share(guard_filter),
                              trace};
  self->state = new Compiled::State();
  return reinterpret_cast<PyObject*>(self);
}

// Swapped out first: what dies with an entry may run Python code that calls us.
void forget(Compiled::State& state) {
  Compiled::State old;
  std::swap(old.start, state.start);
  std::swap(old.sites, state.sites);
  state.warned_failure = false;
  state.was_called = false;
  state.says_compiling = true;
  state.ends.clear();
  state.recompiles.clear();
  state.eager_calls.clear();
}

int compiled_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(self_of(o)->target);
  Py_VISIT(self_of(o)->receiver);
  Py_VISIT(self_of(o)->asked);
  Py_VISIT(self_of(o)->dict);
  if (const Options* options = self_of(o)->options) {
    Py_VISIT(options->backend.get());
    Py_VISIT(options->guard_filter.get());
  }
  return 0;
}
int compiled_clear(PyObject* o) {
  Py_CLEAR(self_of(o)->target);
  Py_CLEAR(self_of(o)->receiver);
  Py_CLEAR(self_of(o)->asked);
  Py_CLEAR(self_of(o)->dict);
  if (Options* options = self_of(o)->options) options->backend = options->guard_filter = PyRef();
  if (self_of(o)->state) forget(*self_of(o)->state);
  return 0;
}
void compiled_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  if (self_of(o)->weakrefs) PyObject_ClearWeakRefs(o);
  compiled_clear(o);
  delete self_of(o)->state;
  delete self_of(o)->options;
  Py_TYPE(o)->tp_free(o);
}

PyObject* compiled_get(PyObject* self, PyObject* object, PyObject*) {
  return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

PyObject* compiled_regions(PyObject* o, PyObject*) {
  std::vector<std::pair<int64_t, PyRef>> all;
  bool sound = true;
  auto add = [&](Site& site) {
    for (const auto& entry : std::vector(site.entries)) sound = sound && settle(self_of(o), site, entry);
    for (const auto& entry : site.entries) all.emplace_back(entry->serial, PyRef::steal(describe(*entry)));
    if (site.plain_instructions && site.plain_instructions != observe::Step::kToTheEnd)
      all.emplace_back(site.plain_serial, PyRef::steal(Py_BuildValue("{s:[],s:N}", "guards", "breaks",
                                                                     describe_breaks(site.plain_breaks))));
  };
  add(self_of(o)->state->start);
  for (auto& [place, site] : std::map(self_of(o)->state->sites)) add(*site);
  if (!sound) return nullptr;
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  PyObject* list = PyList_New(0);
  for (const auto& [serial, dict] : all)
    if (dict) PyList_Append(list, dict.get());
  return list;
}

PyObject* compiled_ends(PyObject* o, PyObject*) { return describe_breaks(self_of(o)->state->ends); }

PyObject* compiled_eager_calls(PyObject* o, PyObject*) {
  return describe_eager_calls(self_of(o)->state->eager_calls);
}

PyObject* compiled_recompiles(PyObject* o, PyObject*) {
  return describe_recompiles(self_of(o)->state->recompiles);
}

/// The seconds that finding the entry for these arguments takes: a call's guards.
PyObject* compiled_guard_seconds(PyObject* o, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  Compiled* self = self_of(o);
  const Roots roots(self, args, static_cast<size_t>(nargs) + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0));
  const Given given{roots.data(), roots.size(), static_cast<size_t>(nargs), kwnames};
  Finding finding(self);
  auto find = [&] { return find_entry(self->state->start, given, finding.found); };
  if (!find()) Py_RETURN_NONE;
  // The median batch: others may use the machine too.
  constexpr int kBatches = 41, kTimes = 25;
  std::array<double, kBatches> batches;
  for (double& seconds : batches) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) find();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTimes;
  }
  std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
  return PyFloat_FromDouble(batches[kBatches / 2]);
}

PyObject* compiled_clear_entries(PyObject* o, PyObject*) {
  forget(*self_of(o)->state);
  Py_RETURN_NONE;
}

PyObject* compiled_getattro(PyObject* o, PyObject* name) {
  if (PyObject* v = PyObject_GenericGetAttr(o, name)) return v;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
  PyErr_Clear();
  return PyObject_GetAttr(self_of(o)->target, name);  // __name__, __doc__, user attributes
}

PyObject* compiled_reduce(PyObject* o, PyObject*) { return in_python("_reduced", o); }
PyObject* compiled_deepcopy(PyObject* o, PyObject* memo) { return in_python("_deepcopied", o, memo); }
PyObject* compiled_copy(PyObject* o, PyObject*) { return Py_NewRef(o); }  // as functions do

/// A function's documentation can be set, and so can ours.
PyObject* compiled_doc(PyObject* o, void*) {
  PyObject* own = self_of(o)->dict ? PyDict_GetItemString(self_of(o)->dict, "__doc__") : nullptr;
  return own ? Py_NewRef(own) : PyObject_GetAttrString(self_of(o)->target, "__doc__");
}
int compiled_set_doc(PyObject* o, PyObject* doc, void*) {
  PyRef dict = PyRef::steal(PyObject_GenericGetDict(o, nullptr));
  return dict ? PyDict_SetItemString(dict.get(), "__doc__", doc ? doc : Py_None) : -1;
}

PyMethodDef compiled_methods[] = {
    {"__reduce__", compiled_reduce, METH_NOARGS, "For pickle."},
    {"__deepcopy__", compiled_deepcopy, METH_O, "Itself, unless a copy of the target is another object."},
    {"__copy__", compiled_copy, METH_NOARGS, "Itself."},
    {"_regions", compiled_regions, METH_NOARGS, "What was compiled so far, a dict for each region."},
    {"_region_ends", compiled_ends, METH_NOARGS,
     "Why recorded regions ended, a dict for each time, in order."},
    {"_eager_calls", compiled_eager_calls, METH_NOARGS, "Calls given to eager, a dict for each reason."},
    {"_recompiles", compiled_recompiles, METH_NOARGS, "Why calls were recorded again, a dict for each time."},
    {"_guard_seconds", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(compiled_guard_seconds)),
     METH_FASTCALL | METH_KEYWORDS,
     "Seconds to check the guards of a call with these arguments; None: no entry fits."},
    {"_clear", compiled_clear_entries, METH_NOARGS, "Forgets everything compiled."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef compiled_getset[] = {
    {"__doc__", compiled_doc, compiled_set_doc, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef compiled_members[] = {
    {"_target", T_OBJECT_EX, offsetof(Compiled, target), READONLY, "What it runs."},
    {"_asked", T_OBJECT_EX, offsetof(Compiled, asked), READONLY, "What it was made from."},
    {"__wrapped__", T_OBJECT_EX, offsetof(Compiled, target), READONLY, "What it runs."},
    {nullptr, 0, 0, 0, nullptr}};

PyTypeObject compiled_type = [] {
  PyTypeObject t{};
  Py_SET_REFCNT(reinterpret_cast<PyObject*>(&t), 1);
  t.tp_name = "torchbolt._C.Compiled";
  t.tp_basicsize = sizeof(Compiled);
  t.tp_flags =
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
  t.tp_new = compiled_new;
  t.tp_dealloc = compiled_dealloc;
  t.tp_traverse = compiled_traverse;
  t.tp_clear = compiled_clear;
  t.tp_call = PyVectorcall_Call;
  t.tp_vectorcall_offset = offsetof(Compiled, vectorcall);
  t.tp_weaklistoffset = offsetof(Compiled, weakrefs);
  t.tp_dictoffset = offsetof(Compiled, dict);
  t.tp_descr_get = compiled_get;
  t.tp_getattro = compiled_getattro;
  t.tp_methods = compiled_methods;
  t.tp_members = compiled_members;
  t.tp_getset = compiled_getset;
  return t;
}();

PyObject* reset_stats(PyObject*, PyObject*) {
  Stats::get().reset();
  Py_RETURN_NONE;
}
PyObject* wait(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS wait_for_background();
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}
PyObject* stop(PyObject*, PyObject*) {
  Py_BEGIN_ALLOW_THREADS stop_background();
  Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

PyObject* set_stance(PyObject*, PyObject* value) {
  const long wanted = PyLong_AsLong(value);
  if (PyErr_Occurred()) return nullptr;
  const auto before = static_cast<long>(own_stance());
  own_stance() = static_cast<Stance>(wanted);
  return PyLong_FromLong(before);
}

PyObject* replace_logs(PyObject*, PyObject* text) {
  const char* wanted = PyUnicode_AsUTF8(text);
  if (!wanted) return nullptr;
  set_logs(wanted);
  Py_RETURN_NONE;
}
PyObject* table_of_logs(PyObject*, PyObject*) {
  PyObject* names = PyDict_New();
  for (const LogName& row : log_names()) {
    PyRef text = PyRef::steal(PyUnicode_FromString(std::string(row.meaning).c_str()));
    PyDict_SetItemString(names, std::string(row.name).c_str(), text.get());
  }
  return names;
}

PyMethodDef functions[] = {
    {"_configure", configure, METH_VARARGS, "_configure(name, number): a setting of program/settings.h."},
    {"_set_logs", replace_logs, METH_O, "What to log from now on, as in TORCHBOLT_LOGS."},
    {"_log_names", table_of_logs, METH_NOARGS, "Names that can be logged, and what they mean."},
    {"_set_stance", set_stance, METH_O, "Sets this thread's stance (its number); the one before."},
    {"stats", stats_dict, METH_NOARGS, "Counters of this process."},
    {"reset_stats", reset_stats, METH_NOARGS, "Sets all counters to zero."},
    {"wait", wait, METH_NOARGS, "Returns when no compilation is running."},
    {"_stop", stop, METH_NOARGS, "Drops compilations that wait and returns when none is running."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

Stance stance() { return own_stance() == Stance::standard ? torchs_stance() : own_stance(); }

int add_callable(PyObject* module) {
  if (PyType_Ready(&compiled_type) < 0) return -1;
  observe::see_through(&compiled_type, offsetof(Compiled, target), offsetof(Compiled, receiver));
  if (PyModule_AddObjectRef(module, "Compiled", reinterpret_cast<PyObject*>(&compiled_type)) < 0) return -1;
  return PyModule_AddFunctions(module, functions);
}

}  // namespace bolt::program

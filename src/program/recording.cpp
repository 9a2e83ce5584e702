// program/recording.cpp
// A run, recorded -> an entry: joins the observer of Python with the recorder of operators, hands both their
// findings to the compiler, and deals with what cannot be kept.
#include <torch/csrc/autograd/python_variable.h>

#include <unordered_map>

#include "compile.h"
#include "program/backend.h"
#include "program/background.h"
#include "program/compiled.h"
#include "program/exceptions.h"
#include "program/settings.h"
#include "program/stats.h"
#include "record/recorder.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/log.h"

namespace bolt::program {
namespace {

/// A loop unrolled further than this is cut, rather than compiled for minutes.
constexpr size_t kMostOperators = 20000;

/// Joins the observer of Python with the recorder of operators.
class Bridge final : public observe::RecorderHooks {
 public:
  void input(PyObject* tensor, int slot) override {
    slots_[THPVariable_Unpack(tensor).unsafeGetTensorImpl()] = slot;
  }
  int output(PyObject* tensor) override {
    auto id = recorder.find(THPVariable_Unpack(tensor));
    if (!id) return -1;
    wanted.push_back(*id);
    return static_cast<int>(wanted.size()) - 1;
  }
  void instruction(const char* file, const char* function, int line) override {
    recorder.instruction(file, function, line);
  }
  const char* wants_end() override {
    if (recorder.tape().entries.size() >= kMostOperators) return "the region has become very long";
    return recorder.escaped().empty() ? nullptr : recorder.escaped().c_str();
  }
  bool in_operator() const override { return recorder.in_operator(); }
  bool reshaped() override { return recorder.reshaped(); }
  void pause(bool on) override { recorder.pause(on); }
  void end_region(bool before_instruction) override { recorder.stop(before_instruction); }

  int slot_of(const at::Tensor& t) const {
    auto it = slots_.find(t.unsafeGetTensorImpl());
    return it == slots_.end() ? -1 : it->second;
  }

  record::Recorder recorder;
  std::vector<record::TensorId> wanted;

 private:
  std::unordered_map<c10::TensorImpl*, int> slots_;
};

std::vector<bool> used_inputs(const record::Tape& tape, const std::vector<record::TensorId>& wanted) {
  std::vector<bool> used(tape.inputs.size(), false);
  auto mark = [&](record::TensorId id) {
    if (id >= 0 && tape.tensors[id].input >= 0) used[tape.tensors[id].input] = true;
  };
  for (const auto& e : tape.entries)
    for (const auto& a : e.args)
      for (auto id : a.tensors) mark(id);
  for (auto id : wanted) mark(id);
  return used;
}

// A tensor found on an object (a module's parameter or buffer, a global) rather than among the arguments: it
// is the same at every call, most likely.
std::vector<bool> slots_on_objects(const guard::Program& guards) {
  std::vector<bool> out(guards.tensor_count(), false);
  for (const auto& source : guards.tree().all())
    for (const auto& a : source->assumptions) {
      if (a.check != guard::Check::tensor) continue;
      bool on_object = source->is_static();
      for (const guard::Source* s = source.get(); s; s = s->parent)
        on_object |= s->access == guard::Access::instance_dict;
      out[a.number] = on_object;
    }
  return out;
}

void warn(PyObject* category, const std::string& text) {
  if (PyErr_WarnEx(category, text.c_str(), 1) < 0) PyErr_WriteUnraisable(nullptr);
}

std::string describe_break(const observe::BreakReason& reason) {
  std::string text = reason.what;
  for (auto line = reason.stack.rbegin(); line != reason.stack.rend(); ++line)
    text += "\n  at " + line->file + ":" + std::to_string(line->line) + " in " + line->function;
  return text;
}

bool strict() { return knob_bool("TORCHBOLT_STRICT") || !Settings::get().suppress_errors; }

std::string name_of(Compiled* self) {
  if (!self->options->name.empty()) return self->options->name;
  PyRef name = PyRef::steal(PyObject_GetAttrString(self->target, "__qualname__"));
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "a function";
}

// A failure of ours: the user already has eager's result. Loud once, then eager; raised in strict mode.
bool report_failure(Compiled* self, const std::string& what) {
  ++Stats::get().eager_fallbacks;
  if (strict()) {
    set_exception("InternalError", "torchbolt: " + what);
    return false;
  }
  if (!self->state->warned_failure) {
    self->state->warned_failure = true;
    warn(PyExc_RuntimeWarning, "torchbolt could not compile a region and runs it eagerly: " + what +
                                   "\nPlease report this, with the output of TORCHBOLT_LOGS=+all.");
  }
  return true;
}

/// So many recordings of one place that could not be kept, and it is not tried again.
constexpr int kHopeless = 2;

/// The region is ready: calls may take the entry.
void adopt(Entry& entry, std::shared_ptr<Region> region) {
  if (region->facts.fallback) ++Stats::get().eager_fallbacks;
  std::vector<int> written;
  for (int i : region->written_inputs())
    if (entry.tape_input_slot[static_cast<size_t>(i)] >= 0)
      written.push_back(entry.tape_input_slot[static_cast<size_t>(i)]);
  entry.guards->forbid_new_overlap(written);
  entry.region = std::move(region);
}

/// compile(), with whatever it throws as text.
void try_compile(Recorded recorded, std::shared_ptr<Region>& region, std::string& failure) {
  try {
    region = compile(std::move(recorded));
  } catch (const std::exception& e) {
    failure = e.what();
  } catch (...) {
    failure = "the compiler threw something that is not a std::exception";
  }
}

/// Which argument it is, or is found in. The state of an object (a module's parameters) is none.
int argument_of(const guard::Source* source) {
  for (; source->parent; source = source->parent)
    if (source->access == guard::Access::instance_dict) return BackendInput::kNoArgument;
  return source->access == guard::Access::root ? static_cast<int>(source->index) : BackendInput::kNoArgument;
}

std::vector<BackendInput> backend_inputs(const Entry& entry, const std::vector<at::Tensor>& tensors,
                                         const std::vector<bool>& used) {
  std::vector<BackendInput> out(tensors.size());
  const guard::SourceTree& tree = entry.guards->tree();
  for (const auto& source : tree.all())
    for (const auto& a : source->assumptions) {
      if (a.check != guard::Check::tensor) continue;
      for (size_t i = 0; i < out.size(); ++i) {
        if (entry.tape_input_slot[i] != a.number || !used[i]) continue;
        out[i] = {tensors[i], source->str(tree.root_names), argument_of(source.get())};
      }
    }
  return out;
}

/// Compiles what was recorded into `entry`, now or in the background.
void build_region(Compiled* self, const std::shared_ptr<Entry>& entry, Bridge& bridge) {
  record::Recorder& recorder = bridge.recorder;
  Recorded recorded;
  recorded.obstacle = recorder.obstacle();
  auto used = used_inputs(recorder.tape(), bridge.wanted);
  auto on_objects = slots_on_objects(*entry->guards);
  for (size_t i = 0; i < recorder.inputs().size(); ++i) {
    int slot = bridge.slot_of(recorder.inputs()[i]);
    auto constant = recorder.constants().find(static_cast<int>(i));
    if (slot < 0 && used[i]) {
      if (constant == recorder.constants().end())
        throw Error(ErrorKind::Internal,
                    "an operator used a tensor that came from nowhere the recording knows (input " +
                        std::to_string(i) + ")");
      recorded.constants.insert(*constant);
    }
    entry->tape_input_slot.push_back(slot);
    recorded.is_param.push_back(slot >= 0 && on_objects[slot]);
  }
  recorded.wanted = bridge.wanted;
  recorded.name = name_of(self);
  recorded.road = self->options->road;
  recorded.tape = std::move(recorder.tape());

  if (self->options->backend) {
    std::vector<BackendInput> inputs = backend_inputs(*entry, recorder.inputs(), used);
    adopt(*entry, compile_with_backend(self->options->backend.get(), std::move(recorded), std::move(inputs)));
    return;
  }
  if (self->options->background) {
    auto pending = entry->pending = std::make_shared<Pending>();
    run_in_background([pending, recorded = std::make_shared<Recorded>(std::move(recorded))] {
      std::shared_ptr<Region> region;
      std::string failure;
      try_compile(std::move(*recorded), region, failure);
      std::lock_guard lock(pending->mutex);
      pending->region = std::move(region);
      pending->failure = std::move(failure);
      pending->done = true;
    });
    return;
  }
  std::shared_ptr<Region> region;
  std::string failure;
  Py_BEGIN_ALLOW_THREADS;
  try_compile(std::move(recorded), region, failure);
  Py_END_ALLOW_THREADS;
  if (!region) throw std::runtime_error(failure);
  adopt(*entry, std::move(region));
}

/// Makes an entry of what was seen. False with an exception only in strict mode or for fullgraph.
bool keep(Compiled* self, Site& site, observe::Observation& seen, Bridge& bridge, size_t nargs,
          PyObject* kwnames) {
  auto& stats = Stats::get();
  bool breaks_are_errors = self->options->fullgraph;
  for (const auto& b : seen.breaks) {
    stats.count_break(b.what);
    breaks_are_errors |= b.is_error;
    if (log_wanted("graph_breaks")) log("graph_breaks", name_of(self) + ": " + describe_break(b));
  }
  if (breaks_are_errors && (seen.end == observe::End::broke || !seen.unsound.empty())) {
    set_exception("GraphBreak", seen.breaks.empty() ? seen.unsound : describe_break(seen.breaks[0]));
    return false;
  }
  if (seen.end == observe::End::raised) return true;
  if (!seen.cacheable()) {
    ++site.hopeless;
    return report_failure(self, seen.unsound);
  }
  if (seen.end == observe::End::broke && bridge.recorder.tape().entries.empty() &&
      seen.recipe.effects.empty()) {
    site.plain_instructions = seen.instructions;
    site.plain_breaks = std::move(seen.breaks);
    site.plain_serial = next_serial();
    return true;
  }
  auto entry = std::make_shared<Entry>();
  entry->instructions = seen.instructions;
  entry->guards = std::move(seen.guards);
  entry->recipe = std::move(seen.recipe);
  entry->after = seen.after;
  entry->changes_thread = !(seen.after == seen.before);
  entry->breaks = std::move(seen.breaks);
  entry->nargs = nargs;
  entry->kwnames = PyRef::share(kwnames);
  if (log_wanted("guards"))
    for (const std::string& line : entry->guards->describe()) log("guards", name_of(self) + ": " + line);
  build_region(self, entry, bridge);
  ++stats.regions;
  if (!site.entries.empty()) ++stats.recompiles;
  site.entries.insert(site.entries.begin(), std::move(entry));
  return true;
}

/// Runs `observe` under a recorder and keeps what it saw.
template <class Observe>
Outcome record(Compiled* self, Site& site, size_t nargs, PyObject* kwnames, Observe observe) {
  const bool errors_before = observe::breaks_are_errors();
  Bridge bridge;
  observe::Ran ran;
  std::unique_ptr<observe::Observation> seen;
  std::string failure;
  try {
    record::Recorder::Scope scope(bridge.recorder);
    seen = observe(bridge, ran);
  } catch (const std::exception& e) {
    failure = e.what();
  }
  if (!ran.result && !ran.suspended) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_SystemError, "torchbolt: recording failed: %s", failure.c_str());
    return {};
  }
  bool kept = false;
  try {
    kept = seen ? keep(self, site, *seen, bridge, nargs, kwnames) : report_failure(self, failure);
  } catch (const PythonError&) {
    kept = false;
  } catch (const std::exception& e) {
    ++site.hopeless;
    kept = report_failure(self, e.what());
  }
  if (kept) return {ran.result, ran.suspended};
  observe::breaks_are_errors() = errors_before;  // the `with` that set it will not be left
  Py_CLEAR(ran.result);
  if (ran.suspended) interp::discard_run(ran.suspended);
  return {};
}

std::string limit_message(Compiled* self, Site& site, PyObject* const* roots, size_t count) {
  std::string message = "torchbolt: " + name_of(self);
  if (site.entries.empty()) return message + " could not be compiled and now runs eagerly.";
  return message + " was compiled " + std::to_string(site.entries.size()) +
         " times (recompile_limit) and now runs eagerly where none of them fits. The last guard that "
         "failed: " +
         failed_guard(site, roots, count) +
         "\nIf this value changes often, pass it as a tensor, or raise recompile_limit.";
}

}  // namespace

Outcome record_call(Compiled* self, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  return record(self, self->state->start, nargs, kwnames, [&](Bridge& bridge, observe::Ran& ran) {
    return observe::observe_call(self->target, args, nargs, kwnames, bridge, ran);
  });
}

Outcome record_frames(Compiled* self, Site& site, interp::Frame* innermost) {
  return record(self, site, 0, nullptr, [&](Bridge& bridge, observe::Ran& ran) {
    return observe::observe_frames(*innermost, bridge, ran);
  });
}

bool settle(Compiled* self, Site& site, const std::shared_ptr<Entry>& entry) {
  if (entry->region || !entry->pending) return true;
  std::shared_ptr<Region> region;
  std::string failure;
  {
    std::lock_guard lock(entry->pending->mutex);
    if (!entry->pending->done) return true;
    region = std::move(entry->pending->region);
    failure = std::move(entry->pending->failure);
  }
  entry->pending = nullptr;
  if (region) {
    adopt(*entry, std::move(region));
    return true;
  }
  std::erase(site.entries, entry);
  ++site.hopeless;
  --Stats::get().regions;
  return report_failure(self, failure);
}

void note_recompile(Compiled* self, Site& site, PyObject* const* roots, size_t count) {
  if (site.entries.empty()) return;
  constexpr size_t kKept = 64;
  auto& kept = self->state->recompiles;
  if (kept.size() >= kKept) kept.erase(kept.begin());
  kept.push_back({name_of(self), failed_guard(site, roots, count)});
  log("recompiles", kept.back().where + " is recorded again, because " + kept.back().guard);
  if (!log_wanted("recompiles_verbose") && !log_wanted("recompiles", true)) return;
  for (size_t i = 1; i < site.entries.size(); ++i)
    log(log_wanted("recompiles", true) ? "recompiles" : "recompiles_verbose",
        "  program " + std::to_string(i) + ": " + site.entries[i]->guards->explain_failure(roots, count));
}

std::string failed_guard(Site& site, PyObject* const* roots, size_t count) {
  return site.entries.empty() ? "" : site.entries.front()->guards->explain_failure(roots, count);
}

bool is_full(Compiled* self, Site& site, PyObject* const* roots, size_t count) {
  const Settings& settings = Settings::get();
  const int64_t limit =
      self->options->recompile_limit ? self->options->recompile_limit : settings.recompile_limit.load();
  size_t all = self->state->start.entries.size();
  for (const auto& [place, other] : self->state->sites) all += other.entries.size();
  const bool full = static_cast<int64_t>(site.entries.size()) >= limit ||
                    static_cast<int64_t>(all) >= settings.accumulated_recompile_limit;
  if (!full && site.hopeless < kHopeless) return false;
  ++Stats::get().eager_fallbacks;
  if (full && (self->options->fullgraph || settings.fail_on_recompile_limit_hit)) {
    set_exception("FailOnRecompileLimitHit", limit_message(self, site, roots, count));
    return true;
  }
  if (!std::exchange(site.warned, true)) warn(PyExc_RuntimeWarning, limit_message(self, site, roots, count));
  return true;
}

}  // namespace bolt::program

// session/call.cpp
#include "session/call.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "interp/arguments.h"
#include "interp/run.h"
#include "observe/calls/torch_marks.h"
#include "record/recorder.h"
#include "run/attempt.h"
#include "session/api.h"
#include "session/compile_entry.h"
#include "session/failures.h"
#include "session/no_fit.h"
#include "session/plain_run.h"
#include "session/recording.h"
#include "session/run_entry.h"
#include "session/settings.h"
#include "session/stance.h"

namespace bolt::session {
namespace {

/// What guards and the target are given: the target, then the arguments.
class Roots {
 public:
  Roots(const Callable* self, PyObject* const* args, size_t nargs, PyObject* kwnames)
      : size_(1 + nargs + interp::keyword_count(kwnames)), nargs_(nargs), kwnames_(kwnames) {
    if (size_ > kSmall) {
      large_.resize(size_);
      data_ = large_.data();
    }
    data_[0] = self->target;
    std::copy(args, args + size_ - 1, data_ + 1);
    if (self->receiver && size_ > 1 && PyObject_TypeCheck(args[0], PyDescr_TYPE(self->receiver)))
      if (PyObject* inner = observe::member_of(args[0], self->receiver)) data_[1] = inner;
  }
  Roots(const Roots&) = delete;
  Given given() const { return {data_, size_, nargs_, kwnames_}; }

 private:
  static constexpr size_t kSmall = 16;
  PyObject* small_[kSmall];
  std::vector<PyObject*> large_;
  PyObject** data_ = small_;
  size_t size_, nargs_;
  PyObject* kwnames_;
};

PyObject* call_target(Callable* self, const Given& given) {
  return PyObject_Vectorcall(self->target, given.args(), given.nargs, given.kwnames);
}

/// Room for what a call's guards find. It is the call's own: whoever lets go of a tensor may lose the GIL for
/// a moment, and another thread calls the same function meanwhile. The next call uses its memory again.
struct Finding {
  explicit Finding(Callable* compiled) : self(compiled), found(std::move(compiled->state->found)) {}
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

  Callable* self;
  guard::Found found;
};

/// The entry of `site` that fits, moved to the front.
std::shared_ptr<CallEntry> find_entry(Site& site, const Given& given, guard::Found& found) {
  auto& entries = site.entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    std::shared_ptr<CallEntry> entry = entries[i];
    if (!has_form_of(given, *entry) || !entry->guards->check(given.roots, given.count, found)) continue;
    if (i > 0 && i < entries.size() && entries[i] == entry)
      std::rotate(entries.begin(), entries.begin() + i, entries.begin() + i + 1);
    return entry;
  }
  return nullptr;
}

/// The entry of `site` that fits once what the background has compiled is taken over: which sizes an entry
/// has room for is known only then. One without a region: it is still being compiled, and fits or may come
/// to. Null with an exception: a compilation failed, in strict mode.
std::shared_ptr<CallEntry> find_settled(Callable* self, Site& site, const Given& given, guard::Found& found) {
  auto fits = find_entry(site, given, found);
  if (fits) site.misses = 0;
  if (fits && fits->waiting) {
    if (!compile_waiting(self, site, fits)) return nullptr;
    fits = find_entry(site, given, found);  // the entry may be gone, and others went on meanwhile
  }
  if (fits && (fits->region || !fits->pending)) return fits;
  if (std::ranges::none_of(site.entries, [](const auto& each) { return each->pending != nullptr; }))
    return nullptr;
  for (const auto& each : std::vector(site.entries))
    if (!settle(self, site, each)) return nullptr;
  if (!fits) fits = find_entry(site, given, found);
  if (fits) return fits;
  auto may_fit = [&](const auto& each) {
    return each->pending && each->pending->varies && has_form_of(given, *each);
  };
  const auto fitting = std::find_if(site.entries.begin(), site.entries.end(), may_fit);
  return fitting == site.entries.end() ? nullptr : *fitting;
}

/// Runs an entry whose guards have just held. False: what it found out on the way is not what it was compiled
/// for, and it is eager's turn. Where that is often so, regions had better end where sizes are data. What was
/// guessed wrong is not guessed again.
bool run_settled(Callable* self, Site& site, const std::shared_ptr<CallEntry>& entry, guard::Found& found,
                 Outcome& at) {
  constexpr int kUnfit = 4, kMostUnfit = 16;
  try {
    at = run_entry(*entry, found);
  } catch (const run::RunEagerly& why) {
    note_eager_call(self, why.why);
    if (why.of_data && (entry->unfit += kUnfit) > kMostUnfit) {
      end_earlier(self, EndsEarlier::at_data_sizes, why.why.text());
      std::erase(site.entries, entry);
    } else if (!why.guessed.empty() && self->state->not_guessed.insert(why.guessed).second) {
      std::erase(site.entries, entry);  // it is recorded again, for the sizes of the call
    }
    return false;
  }
  if (auto successor = entry->region->successor())
    entry->tried = std::exchange(entry->region, std::move(successor));
  if (entry->unfit > 0) --entry->unfit;
  at.computed = computes(*entry);
  at.idle = entry->idle;
  return true;
}

/// Past the instruction that ended the region.
Outcome past_end(const Outcome& at) {
  if (!at.frames) return at;
  Outcome next = step(at.frames, 1);
  next.computed = at.computed;
  next.idle = at.idle;
  return next;
}

/// Takes a suspended run through the region of an entry that fits, and past the instruction that ends it.
Outcome go_through(Callable* self, Site& site, const std::shared_ptr<CallEntry>& entry, Finding& finding,
                   interp::Frame* innermost) {
  if (!entry->region) return {run_plainly(innermost)};  // still being compiled
  Outcome at;
  if (!run_settled(self, site, entry, finding.found, at)) return {run_plainly(innermost)};
  if (!at.result && !at.frames) {  // it raised: so does the instruction that the run stands at
    finding.let_go();
    return {run_plainly(innermost, true)};
  }
  if (at.frames) keep_frame_objects(*entry, *innermost, *at.frames);
  interp::replace_run(innermost);
  finding.let_go();
  return past_end(at);
}

/// The exception that is set ends the run.
Outcome close(interp::Frame* innermost) {
  interp::close_run(*innermost);
  return {};
}

/// So many regions in a row that compute nothing, and the run goes on plainly as far as an operator: a loop
/// that reads or parses something has ends in each turn, which cost more than its work.
constexpr int kFruitless = 256;

/// Takes a run that stands after the instruction that ended a region as far as the next one, or to its end.
Outcome go_on_once(Callable* self, interp::Frame* innermost, int fruitless) {
  // A loop that goes round in compiled regions would never get to the interpreter's own look at signals.
  if (PyErr_CheckSignals() < 0) return {run_plainly(innermost, true)};
  if (thread_is_traced(PyThreadState_Get())) return run_traced(innermost);
  if (guard::modes_run_python()) {
    observe::StepThroughModes steps;
    PyObject* result = interp::run_frame(*innermost, steps);
    return {result, steps.suspended};
  }
  if (fruitless > kFruitless) return step_to_operator(innermost);
  // Held: another thread may have everything forgotten meanwhile.
  std::shared_ptr<Site>& place = self->state->sites[observe::place_of(*innermost)];
  if (!place) place = std::make_shared<Site>();
  const std::shared_ptr<Site> held = place;
  Site& site = *held;
  if (site.plain_instructions && site.entries.empty()) return step_at(site, innermost);
  if (is_passed_over(self, site))
    return site.plain_instructions ? step_at(site, innermost) : step(innermost, length_of(site));
  const std::vector<PyObject*> roots = observe::roots_of(*innermost);
  const Given given{roots.data(), roots.size()};
  Finding finding(self);
  if (auto entry = find_settled(self, site, given, finding.found))
    return go_through(self, site, entry, finding, innermost);
  if (PyErr_Occurred()) return close(innermost);
  if (site.plain_instructions) return note_miss(site), step_at(site, innermost);
  if (stance_forbids(self, site, given))
    return PyErr_Occurred() ? close(innermost) : Outcome{run_plainly(innermost)};
  if (is_full(self, site, given))
    return PyErr_Occurred() ? close(innermost) : step(innermost, length_of(site));
  note_recompile(self, site, given);
  return record_frames(self, site, innermost);
}

/// To its result, region by region.
PyObject* go_on(Callable* self, Outcome at) {
  for (int fruitless = 0; at.frames;) {
    fruitless = at.idle ? kFruitless + 1 : at.computed ? 0 : fruitless + 1;
    at = go_on_once(self, at.frames, fruitless);
  }
  return at.result;
}

/// While it lives, a callable is told what it shall be when it asks for the compiler, its regions end where
/// its recordings found out that they must, and a region's end is an error where the user said so in torch's
/// words.
struct Answering {
  explicit Answering(Callable::State& state)
      : before(std::exchange(observe::says_compiling(), state.says_compiling)),
        ends(std::exchange(observe::Ends::current(), state.learned.get())),
        breaks(observe::breaks_are_errors()) {
    observe::breaks_are_errors() = breaks || observe::torch_forbids_breaks();
  }
  ~Answering() {
    observe::says_compiling() = before;
    observe::Ends::current() = ends;
    observe::breaks_are_errors() = breaks;
  }
  Answering(const Answering&) = delete;
  const bool before;
  observe::Ends* const ends;
  const bool breaks;
};

/// A call of a place that takes no more entries.
PyObject* call_full(Callable* self, Site& site, const Given& given) {
  if (self->state->sites.empty()) return call_target(self, given);
  return go_on(self, step_into(self, given, length_of(site)));
}

/// A call that no entry fits.
PyObject* call_unfitted(Callable* self, Site& site, const Given& given) {
  // A guard that met an interrupt fits nothing (forget_error). Nothing has happened yet: the call ends here,
  // and not somewhere in the middle of a recording.
  if (PyErr_CheckSignals() < 0) return nullptr;
  if (site.plain_instructions) return note_miss(site), go_on(self, step_into(self, site, given));
  if (stance_forbids(self, site, given)) return PyErr_Occurred() ? nullptr : call_target(self, given);
  if (is_full(self, site, given)) return PyErr_Occurred() ? nullptr : call_full(self, site, given);
  note_recompile(self, site, given);
  const RecordingOutcome recorded = record_call(self, given);
  PyObject* result = go_on(self, recorded.outcome);
  settle_answer(self, recorded, !result);
  return result;
}

/// torch.jit.trace is under way, or an exporter that builds on it.
bool torch_traces() { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Tracer); }

/// Shall the call not be ours?
bool is_eagers(Callable* self) {
  // Debuggers want to see every line, modes and torch's tracer every operator.
  if (thread_is_traced(PyThreadState_Get()) || guard::modes_run_python() || torch_traces()) {
    note_eager_call(self, Why::every_step_seen);
    return true;
  }
  // Inside somebody else's recording we are just a Python call.
  return record::Recorder::current() && !record::Recorder::current()->stopped();
}

}  // namespace

PyObject* compiled_call(PyObject* callable, PyObject* const* called_with, size_t nargsf, PyObject* kwnames) {
  Callable* self = reinterpret_cast<Callable*>(callable);
  const Roots roots(self, called_with, PyVectorcall_NARGS(nargsf), kwnames);
  const Given given = roots.given();
  const Stance now = stance();
  if (now == Stance::force_eager || Settings::get().disable) return call_target(self, given);
  if (now == Stance::force_backend)
    if (PyRef twin = PyRef::steal(in_python("_twin", callable)); !twin || twin.get() != callable)
      return twin ? PyObject_Vectorcall(twin.get(), called_with, nargsf, kwnames) : nullptr;
  if (is_eagers(self)) return call_target(self, given);

  Site& site = self->state->start;
  bool fits = false;
  Outcome at;
  if (is_passed_over(self, site)) {
    if (PyErr_CheckSignals() < 0) return nullptr;
    const Answering answering(*self->state);
    return site.plain_instructions ? go_on(self, step_into(self, site, given)) : call_full(self, site, given);
  }
  if (!site.entries.empty()) {
    Finding finding(self);
    if (auto entry = find_settled(self, site, given, finding.found)) {
      if (!entry->region) return call_target(self, given);  // still being compiled
      fits = run_settled(self, site, entry, finding.found, at);
      if (!fits) return call_target(self, given);
    } else if (PyErr_Occurred()) {
      return nullptr;
    }
  }
  if (fits && !at.frames) return at.result;
  const Answering answering(*self->state);
  if (!fits) return call_unfitted(self, site, given);
  return go_on(self, past_end(at));
}

std::optional<double> guard_seconds(Callable* self, PyObject* const* args, size_t nargs, PyObject* kwnames) {
  const Roots roots(self, args, nargs, kwnames);
  const Given given = roots.given();
  Finding finding(self);
  auto find = [&] { return find_entry(self->state->start, given, finding.found); };
  if (!find()) return std::nullopt;
  // The median batch: others may use the machine too.
  constexpr int kBatches = 41, kTimes = 25;
  std::array<double, kBatches> batches;
  for (double& seconds : batches) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kTimes; ++i) find();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTimes;
  }
  std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
  return batches[kBatches / 2];
}

}  // namespace bolt::session

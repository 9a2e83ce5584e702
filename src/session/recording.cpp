// session/recording.cpp
#include "session/recording.h"

#include <algorithm>

#include "autograd/gradients.h"
#include "interp/code.h"
#include "lower/lowering.h"
#include "observe/ends/learned_ends.h"
#include "session/backend.h"
#include "session/bridge.h"
#include "session/failures.h"
#include "session/make_entry.h"
#include "support/error.h"
#include "support/log.h"
#include "support/stats.h"

namespace bolt::session {
namespace {

void log_differences(Callable* self, const guard::Differences& differ) {
  std::string text;
  for (const auto& [place, dims] : differ.sizes)
    for (int dim = 0; dim < 64; ++dim)
      if (dims >> dim & 1) text += (text.empty() ? "" : ", ") + place + ".size(" + std::to_string(dim) + ")";
  for (const std::string& place : differ.numbers) text += (text.empty() ? "" : ", ") + place;
  log("dynamic", name_of(self) + ": these differ between calls and become symbols: " + text);
}

/// A whole step is a program for one set of sizes (Bridge::leaves_behind). The last batch of an epoch gets
/// one of its own; where there is a third set, sizes are symbols, and regions end at the backward pass.
bool is_step(const std::shared_ptr<CallEntry>& entry) {
  if (entry->waiting) return autograd::has_passes(entry->waiting->tape);
  return entry->region && autograd::has_passes(entry->region->tape());
}
bool is_step_for_few_sizes(const Site& site) {
  return std::ranges::any_of(site.entries, is_step) &&
         std::ranges::none_of(site.entries,
                              [&](const auto& entry) { return entry->has_other_sizes && is_step(entry); });
}

/// So it is with sizes that are numbers of Python's, which are symbols from the second value on: a step whose
/// passes had to know one is that of the second.
bool is_step_for_one_number(const std::shared_ptr<CallEntry>& entry) {
  if (!is_step(entry) || !entry->region || entry->region->facts.sizes_given_up.empty()) return false;
  return std::ranges::any_of(entry->region->tape().entries, record::may_be_sized_by_symbols);
}

/// What differs between this call and those recorded before becomes a symbol.
void prepare(Callable* self, Site& site, const Given& given, Bridge& bridge) {
  const guard::Differences before = log_wanted("dynamic") ? site.changed : guard::Differences();
  guard::Differences now;
  bridge.has_other_sizes = !site.entries.empty();
  for (const auto& entry : site.entries) {
    guard::Differences from;
    entry->guards->add_differences(given.roots, given.count, from);
    bridge.has_other_sizes &= !from.sizes.empty();
    for (const auto& [place, dims] : from.sizes) now.sizes[place] |= dims;
    now.numbers.merge(from.numbers);
  }
  if (is_step_for_few_sizes(site)) now.sizes.clear();
  for (const std::string& place : now.numbers) ++site.changed.times[place];
  if (bridge.which() != Dynamic::never) {
    for (const auto& [place, dims] : now.sizes) site.changed.sizes[place] |= dims;
    site.changed.numbers.merge(now.numbers);
  }
  if (log_wanted("dynamic") && site.changed != before) log_differences(self, site.changed);
  bridge.recorder.ends_at_other_kinds = !self->options->fullgraph;
  const bool compiles = self->options->road == run::Road::compile && !self->options->backend;
  bridge.recorder.goes_on_with_data_sizes =
      compiles && bridge.which() != Dynamic::never && !self->state->ends_at_data_sizes;
  bridge.recorder.goes_on_with_selected_rows =
      bridge.recorder.goes_on_with_data_sizes && !self->state->ends_at_selected_rows;
  bridge.ends_before_backward =
      self->state->ends_before_backward || std::ranges::any_of(site.entries, is_step_for_one_number);
  if (compiles) bridge.recorder.has_row = lower::has_row;
}

/// The run raised, or the observer failed before there was one. True: it may not raise where is_compiling()
/// is answered with no, and left no trace.
bool was_misled(Callable* self, const observe::Observation* seen, Bridge& bridge,
                const std::string& failure) {
  if (!PyErr_Occurred()) PyErr_Format(PyExc_SystemError, "torchbolt: recording failed: %s", failure.c_str());
  if (!seen || !seen->trace || !PyErr_ExceptionMatches(PyExc_Exception)) return false;
  const bool misled = seen->trace->empty();
  if (misled)
    bridge.recorder.put_back_draws();
  else if (log_wanted("graph_breaks"))
    log("graph_breaks", name_of(self) +
                            ": raised where is_compiling() is true, and cannot be run again with another "
                            "answer: " +
                            *seen->trace);
  return misled;
}

/// make_entry, with whatever it throws reported. `failure`: of the observer, if nothing was seen. False with
/// an exception.
bool keep(Callable* self, Site& site, const Given& given, observe::Observation* seen, Bridge& bridge,
          const std::string& failure) {
  try {
    return seen ? make_entry(self, site, given, *seen, bridge) : report_failure(self, failure);
  } catch (const PythonError&) {
    const bool suppressed = suppress_backends_failure(self);
    if (suppressed) ++site.hopeless;
    return suppressed;
  } catch (const Error& e) {
    ++site.hopeless;
    return report_failure(self, e.what(), e.kind() == ErrorKind::User);
  } catch (const std::exception& e) {
    ++site.hopeless;
    return report_failure(self, e.what());
  }
}

/// The `raise` statement that the exception in progress comes from; nothing: it is C code's. The code is
/// borrowed from the traceback.
std::optional<std::pair<PyCodeObject*, int>> raise_statement(PyObject* exception) {
  const PyRef traceback = PyRef::steal(PyException_GetTraceback(exception));
  auto* at = reinterpret_cast<PyTracebackObject*>(traceback.get());
  while (at && at->tb_next) at = at->tb_next;
  if (!at) return std::nullopt;
  const PyRef code = PyRef::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at->tb_frame)));
  auto* raising = reinterpret_cast<PyCodeObject*>(code.get());
  const interp::Code* prepared = interp::prepare(raising);
  const auto pc = static_cast<size_t>(at->tb_lasti) / sizeof(CodeUnit);
  if (!prepared || pc >= prepared->instrs.size()) return PyErr_Clear(), std::nullopt;
  if (prepared->instrs[pc].op != interp::op::RAISE_VARARGS) return std::nullopt;
  return std::pair(raising, static_cast<int>(pc));
}

/// The run raised, which is the user's to see whatever becomes of the recording. Where the region had ended
/// before, it is kept like any other. If a `raise` of the program's ended it, which no call gets past, the
/// next recording ends before that; so later calls are compiled up to there. Where there is nothing to
/// compile on the way to it they run plainly.
void keep_raised(Callable* self, Site& site, const Given& given, observe::Observation& seen, Bridge& bridge) {
  const RaisedAside raised;
  const bool may_end = !self->options->fullgraph && !observe::breaks_are_errors();
  if (may_end && seen.end == observe::End::broke && seen.cacheable()) {
    if (!keep(self, site, given, &seen, bridge, "")) PyErr_Clear();
    return;
  }
  if (!may_end || seen.end != observe::End::raised) return;
  observe::Ends& ends = *self->state->learned;
  const uint64_t known = ends.count();
  if (const auto at = raise_statement(raised.exception))
    ends.add(reinterpret_cast<PyObject*>(at->first), at->second,
             {Why::raises, Py_TYPE(raised.exception)->tp_name}, false);
  if (ends.count() != known || site.never_plain || !bridge.recorder.tape().entries.empty()) return;
  ++seen.instructions;  // a run that gets that far, or to a result, has come elsewhere
  note_plain_run(site, seen);
}

/// Runs `observe` under a recorder and keeps what it saw. `misled`: see was_misled.
template <class Observe>
Outcome record(Callable* self, Site& site, const Given& given, bool& misled, Observe observe) {
  ++Stats::get().recordings;
  Bridge bridge(*self->options, site.changed, site.may_advance());
  prepare(self, site, given, bridge);
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
    misled = was_misled(self, seen.get(), bridge, failure);
    if (!misled && seen) keep_raised(self, site, given, *seen, bridge);
    return {};
  }
  const bool computed = !bridge.recorder.tape().entries.empty();
  const bool idle = seen && seen->idle;
  if (keep(self, site, given, seen.get(), bridge, failure))
    return {ran.result, ran.suspended, computed, idle};
  Py_CLEAR(ran.result);
  if (ran.suspended) interp::close_run(*ran.suspended);
  // The error is ours, and the call as if it had not begun: as far as that is known.
  if (seen) seen->undo.put_back();
  bridge.recorder.put_back_draws();
  return {};
}

}  // namespace

RecordingOutcome record_call(Callable* self, const Given& given) {
  bool misled = false;
  auto run = [&] {
    return record(self, self->state->start, given, misled, [&](Bridge& bridge, observe::Ran& ran) {
      return observe::observe_call(self->target, given.args(), given.nargs, given.kwnames, bridge, ran);
    });
  };
  RecordingOutcome call{run()};
  if (!misled) return call;
  call.raised = PyRef::steal(take_raised());
  Site& site = self->state->start;
  const std::shared_ptr<CallEntry> before = site.entries.empty() ? nullptr : site.entries.front();
  call.ends = self->state->learned->count();
  observe::says_compiling() = false;  // until the call is over
  call.outcome = run();
  if (!site.entries.empty() && site.entries.front() != before) call.entry = site.entries.front();
  return call;
}

void settle_answer(Callable* self, const RecordingOutcome& call, bool raised) {
  if (!call.raised) return;
  if (raised) {
    std::erase(self->state->start.entries, call.entry);
    self->state->learned->forget_since(call.ends);
    return;
  }
  self->state->says_compiling = false;
  log("graph_breaks", name_of(self) + ": raised " + Py_TYPE(call.raised.get())->tp_name +
                          " where is_compiling() is true; from here on it is answered with no");
}

Outcome record_frames(Callable* self, Site& site, interp::Frame* innermost) {
  const std::vector<PyObject*> roots = observe::roots_of(*innermost);
  bool misled = false;  // what came before cannot be run again
  return record(self, site, {roots.data(), roots.size()}, misled, [&](Bridge& bridge, observe::Ran& ran) {
    return observe::observe_frames(*innermost, bridge, ran);
  });
}

}  // namespace bolt::session

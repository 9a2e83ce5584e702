// program/plain_run.cpp: see plain_run.h.
#include "program/plain_run.h"

#include <optional>

#include "interp/run.h"
#include "record/recorder.h"

namespace bolt::program {
namespace {

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

PyObject* call_under(Compiled* self, const Given& given, observe::Step& steps) {
  return interp::call_function(self->target, given.args(), given.nargs, given.kwnames, steps);
}

}  // namespace

PyObject* run_plainly(interp::Frame* innermost, bool signalled) {
  static interp::PlainSemantics plain;
  return interp::run_frame(*innermost, plain, signalled);
}

Outcome step(interp::Frame* innermost, int64_t instructions) {
  observe::Step steps(instructions);
  PyObject* result = interp::run_frame(*innermost, steps);
  return {result, steps.suspended};
}

Outcome step_into(Compiled* self, const Given& given, int64_t instructions) {
  observe::Step steps(instructions);
  PyObject* result = call_under(self, given, steps);
  return {result, steps.suspended};
}

Outcome step_at(Site& site, interp::Frame* innermost) {
  return run_as_before(site, [&](observe::Step& steps) { return interp::run_frame(*innermost, steps); });
}

Outcome step_into(Compiled* self, Site& site, const Given& given) {
  return run_as_before(site, [&](observe::Step& steps) { return call_under(self, given, steps); });
}

int64_t length_of(const Site& site) {
  int64_t length = site.entries.empty() ? 0 : site.entries.front()->instructions;
  return length > 0 ? length : observe::Step::kToTheEnd;
}

}  // namespace bolt::program

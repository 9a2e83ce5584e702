// session/plain_run.h
// A run that no region takes further -> as far as it goes in the interpreter alone: to its end, past the
// instruction that ended a region, or as far as its site says that there is nothing to compile.
#pragma once

#include "session/entries.h"

namespace bolt::session {

/// To its end. `signalled`: an exception that a signal's handler raised is set, and the run meets it first.
PyObject* run_plainly(interp::Frame* innermost, bool signalled = false);

/// For as long as a tracer that something inside the run has installed (breakpoint()) wants to see it.
Outcome run_traced(interp::Frame* innermost);

/// Runs so many instructions in the interpreter.
Outcome step(interp::Frame* innermost, int64_t instructions);
/// Begins a call, and runs so many instructions of it.
Outcome step_into(Callable* self, const Given& given, int64_t instructions);

/// Runs as far as the first operator.
Outcome step_to_operator(interp::Frame* innermost);

/// As many as runs from there took before (Site::plain_instructions).
Outcome step_at(Site& site, interp::Frame* innermost);
Outcome step_into(Callable* self, Site& site, const Given& given);

/// How far to run plainly at a site that takes no more entries: past its region, or to the end.
int64_t length_of(const Site& site);

}  // namespace bolt::session

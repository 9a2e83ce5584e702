// session/compile_entry.h
// A finished recording -> the region of its entry: by our compiler, now or in the background, or by a backend
// of the user's. What the compiler took for granted about sizes and memory becomes part of the entry's guards
// when the region is ready.
#pragma once

#include <memory>

#include "session/bridge.h"
#include "session/entries.h"

namespace bolt::session {

/// Compiles what was recorded into `entry`, now, in the background, or, where the run itself has left what
/// its guards rest on otherwise (an optimizer had no state yet, a cache was empty), when a call first fits
/// again: there may never be one. `given`: of a call that was recorded from its beginning, else null. False:
/// the recording is of no use, and the next one ends where sizes are data. Throws for failures; PythonError
/// for those of a backend.
bool compile_entry(Callable* self, const std::shared_ptr<CallEntry>& entry, Bridge& bridge,
                   observe::Observation& seen, const Given* given);

/// Compiles what `entry` waits for, if it does. Failures are as those of `settle`; also where regions are to
/// end earlier the entry is gone.
bool compile_waiting(Callable* self, Site& site, const std::shared_ptr<CallEntry>& entry);

/// Compiles an entry that was read from an archive, from what it was compiled from. Throws for failures.
void compile_again(Callable* self, CallEntry& entry);

/// Takes over what the background compilation of `entry` has come to by now. A failure takes the entry out of
/// `site` and is reported like one in the foreground: false with an exception set in strict mode.
bool settle(Callable* self, Site& site, const std::shared_ptr<CallEntry>& entry);

}  // namespace bolt::session

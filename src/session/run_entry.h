// session/run_entry.h
// An entry whose guards have just held, and what they found -> the call's result, or a run that stands at the
// instruction which ended the region.
#pragma once

#include "session/entries.h"

namespace bolt::session {

/// Runs it. Throws RunEagerly before anything can be seen of it.
Outcome run_entry(const CallEntry& entry, guard::Found& found);

/// The frames of the run that goes on in `after` have new records: the objects that Python code holds of
/// those which were there before (sys._getframe()) tell of them from now on.
void keep_frame_objects(const CallEntry& entry, interp::Frame& before, interp::Frame& after);

}  // namespace bolt::session

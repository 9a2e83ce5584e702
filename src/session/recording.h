// session/recording.h
// A call, or the rest of one -> its real result, and an entry for later ones: the run is observed and its
// operators are recorded. What the run came to is the user's, whatever becomes of the recording.
#pragma once

#include "session/entries.h"

namespace bolt::session {

/// A recorded call. Programs take ways of their own where they are told that they are compiled, and some of
/// them lead to an error that eager does not have (a mask that is only made when they are not): what raised
/// and left no trace is run a second time and told otherwise.
struct RecordingOutcome {
  Outcome outcome;
  PyRef raised = {};                      ///< by the first run; null: there is no second
  std::shared_ptr<CallEntry> entry = {};  ///< by the second run; may be null
  uint64_t ends = 0;                      ///< of its places where regions end, before it
};

/// Calls the target for real and makes an entry of it.
RecordingOutcome record_call(Callable* self, const Given& given);
/// The call is over. If the second run did not raise either, its answer is the one that later calls get;
/// otherwise nothing is left of it.
void settle_answer(Callable* self, const RecordingOutcome& call, bool raised);
/// Goes on with a suspended run for real and makes an entry of `site` of it.
Outcome record_frames(Callable* self, Site& site, interp::Frame* innermost);

}  // namespace bolt::session

// session/make_entry.h
// What a recorded run showed -> an entry of the place it began at, or a note that there is nothing to compile
// there, or nothing: runs that raised and recordings that missed something are not kept.
#pragma once

#include "session/bridge.h"
#include "session/entries.h"

namespace bolt::session {

/// Makes an entry of what was seen of a run of `given`. False with an exception only in strict mode or for
/// fullgraph. Throws what compile_entry does.
bool make_entry(Callable* self, Site& site, const Given& given, observe::Observation& seen, Bridge& bridge);

/// From `site` there was nothing to compile in what was seen: runs from there take as many instructions in
/// the interpreter, and are recorded if that leads them elsewhere.
void note_plain_run(Site& site, observe::Observation& seen);

}  // namespace bolt::session

// session/no_fit.h
// A place where no entry fits what is given -> what is done about it, and what is said. Asked in this order:
// does the stance leave it to eager, has the place been recorded often enough, and if neither, which guard
// made another recording necessary.
#pragma once

#include "session/entries.h"

namespace bolt::session {

/// True when the stance in force leaves a call that no entry fits to eager; with an exception set where it is
/// an error.
bool stance_forbids(Callable* self, const Site& site, const Given& given);

/// True when `site` shall not be recorded any more; says so once, or sets an exception where that is asked
/// for. No entry fits what is given.
bool is_full(Callable* self, Site& site, const Given& given);

/// No entry of `site` fitted, and it gets no further one.
void note_miss(Site& site);
/// True when its entries need not be asked this time: they have fitted none of many calls in a row, and the
/// guards of all of them may take longer than what they stand before. They are asked now and then.
bool is_passed_over(Callable* self, Site& site);

/// What is about to be recorded at `site` was recorded before: logs and keeps why that does not fit.
void note_recompile(Callable* self, Site& site, const Given& given);

}  // namespace bolt::session

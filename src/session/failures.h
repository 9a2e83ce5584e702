// session/failures.h
// What did not work out -> what the user hears of it: a count, the log, a logger's warning, or an exception.
// The call itself goes on in eager wherever it can; only strict mode raises for failures of ours.
#pragma once

#include <string>

#include "session/entries.h"
#include "support/reason.h"

namespace bolt::session {

/// The name given to compile(), or else the target's own.
std::string name_of(Callable* self);

/// Failures of ours are raised.
bool strict();

/// To the logger "torchbolt", as torch does with its own: Python's warnings are the program's, which may
/// count them, or make exceptions of all, around a call that gives none in eager; each is noted in its
/// globals.
void warn(const std::string& text);

/// A call, or the rest of one, is given to eager: counts it, keeps the reason for explain(), tells the log.
void note_eager_call(Callable* self, const Reason& why);

/// Recordings have to end there from now on.
void end_earlier(Callable* self, EndsEarlier where, const std::string& why);

/// A failure of ours, or `is_users`, of something that the user has set: raised in strict mode (false, with
/// an exception), otherwise loud once.
bool report_failure(Callable* self, const std::string& what, bool is_users = false);

/// A Python exception is set. False: it is the user's to see, and no failure of a backend that is to be
/// suppressed.
bool suppress_backends_failure(Callable* self);

}  // namespace bolt::session

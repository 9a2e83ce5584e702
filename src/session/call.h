// session/call.h
// A call -> its result. The entry whose guards hold is run; what it leaves suspended goes on region by region
// until there is a result. Where no entry fits, the run is recorded from there, or is the interpreter's or
// eager's.
//
// Entries are tried in the order of their last hit. All of this happens under the GIL; an entry in use is
// kept alive by its own reference, so that threads, recursion and reset() in the middle of a call are
// harmless.
#pragma once

#include <optional>
#include <vector>

#include "session/entries.h"

namespace bolt::session {

/// The vectorcall of Callable.
PyObject* compiled_call(PyObject* callable, PyObject* const* called_with, size_t nargsf, PyObject* kwnames);

/// The seconds that finding the entry for these arguments takes: a call's guards. Nothing: no entry fits.
std::optional<double> guard_seconds(Callable* self, PyObject* const* args, size_t nargs, PyObject* kwnames);

}  // namespace bolt::session

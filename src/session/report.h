// session/report.h
// Entries, reasons and counters -> Python lists and dicts, for explain() and stats().
#pragma once

#include <Python.h>

#include <string>
#include <utility>
#include <vector>

#include "session/entries.h"

namespace bolt::session {

/// One entry as a dict for explain(); all counters as a dict for stats().
PyObject* describe(const CallEntry& entry);
PyObject* describe_recompiles(const std::vector<Recompile>& recompiles);
PyObject* describe_eager_calls(const std::vector<std::pair<Reason, int64_t>>& calls);
PyObject* describe_breaks(const std::vector<observe::RegionEnd>& breaks);
PyObject* stats_dict(PyObject*, PyObject*);

}  // namespace bolt::session

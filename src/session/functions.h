// session/functions.h
// Python's functions around compiled callables: stats, reset_stats, wait, logs, settings, the stance.
#pragma once

#include <Python.h>

namespace bolt::session {

/// A table for PyModule_AddFunctions.
extern PyMethodDef functions[];

}  // namespace bolt::session

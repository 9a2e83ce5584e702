// interp/call_site.h
// A call made later, as if from where it stands in the user's code.
//
// What looks at its callers (warnings.warn(stacklevel=), a logger that notes file and line) meets frames of
// the functions that were running there, at the lines where they stood. Their locals are not theirs any more:
// unbound.
#pragma once

#include <Python.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace bolt::interp {

/// A function and an instruction of it (Frame::pc).
using Standing = std::pair<PyObject*, int>;

/// callable(*args), under CPython, with frames for `callers` (oldest first) on the thread's stack. As
/// PyObject_Vectorcall.
PyObject* call_from(const std::vector<Standing>& callers, PyObject* callable, PyObject* const* args,
                    size_t nargs, PyObject* kwnames);

}  // namespace bolt::interp

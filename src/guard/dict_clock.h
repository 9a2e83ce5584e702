// guard/dict_clock.h
// Can a dict that guards have read be another one than a moment ago? If none can, none is looked at: a model
// has eight dicts a module, each at a place of its own in memory.
//
// Python 3.11 gives every change of any dict the next number of one counter. The clock changes a dict of its
// own and sees which number it gets: if others were taken in between, some dict of the process was made or
// changed. From 3.12 on the dicts are watched, and only a change of one of those counts.
#pragma once

#include <cstdint>

#include "python/py_ref.h"

namespace bolt::guard {

/// From now on dict_time() tells of changes of `dict`.
void watch_dict(PyObject* dict);

/// As long as this is one number, no watched dict is changed or freed. Needs the GIL.
uint64_t dict_time();

}  // namespace bolt::guard

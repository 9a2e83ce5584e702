// observe/reads/membership.h
// `step in (1, 5)`, table.get(step), of a number that differs between calls -> whether it is there, as a
// fact, not which it is. So all steps that are in none of a schedule's milestones have one recording.
#pragma once

#include <optional>

#include "observe/recording.h"

namespace bolt::observe {

/// Is `number`, or a text that differs between calls, in `container`? Notes the answer. Nothing: not here.
std::optional<bool> number_among(Recording& recording, PyObject* container, PyObject* number);
/// A method of a container that is given such a number, `all` with the container first. Null without an
/// exception: not here.
PyObject* call_with_member(Recording& recording, const CFunction& row, const std::vector<PyObject*>& all);

}  // namespace bolt::observe

// session/marks.h
// mark_dynamic and its kin.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "python/py_ref.h"

namespace bolt::session {

/// What the user said about a tensor's sizes. The marks are attributes under the names that torch gives them,
/// so that code which marks for torch.compile is understood.
struct Marks {
  uint64_t dynamic = 0, maybe = 0, fixed = 0;
  std::vector<std::tuple<int, std::optional<int64_t>, std::optional<int64_t>>> ranges;
};

Marks marks_of(PyObject* tensor);

}  // namespace bolt::session

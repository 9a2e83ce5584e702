// support/dump.h
// Text of any stage, on request: TORCHBOLT_DUMP=graph, graph:decompose, kernel:*@softmax_0, ...
//
// An item of the list is stage[:pass][@name]; `all` or `*` stands for anything, a missing part too. Text goes
// to standard error, or to numbered files in TORCHBOLT_DUMP_DIR. Asking costs one string comparison when the
// variable is not set.
#pragma once

#include <string>
#include <string_view>

#include "support/export.h"

namespace bolt {

BOLT_API bool dump_wanted(std::string_view stage, std::string_view pass = "", std::string_view name = "");
BOLT_API void dump(std::string_view stage, std::string_view pass, std::string_view name,
                   std::string_view text);

}  // namespace bolt

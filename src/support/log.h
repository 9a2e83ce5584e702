// support/log.h
// What users ask to be told: TORCHBOLT_LOGS (or TORCH_LOGS) = graph_breaks, guards, +recompiles, all, help,
// ...
//
// The table of names is log.cpp's. A name with `+` in front asks for more of the same, with `-` for none.
// Text goes to standard error, or to TORCHBOLT_LOGS_OUT. Asking costs one comparison when nothing is set.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/export.h"

namespace bolt {

struct LogName {
  std::string_view name;
  std::string_view part_of;  ///< asking for this asks for the row, too
  std::string_view meaning;
  bool other_name = false;  ///< of `part_of`
};
BOLT_API const std::vector<LogName>& log_names();

/// Asked for? `more`: with a plus.
BOLT_API bool log_wanted(std::string_view name, bool more = false);
/// Writes "[name] text", the name before each line, if it was asked for.
BOLT_API void log(std::string_view name, std::string_view text);
/// Replaces what the environment says; "" gives it back. torchbolt.set_logs.
BOLT_API void set_logs(const std::string& wanted);
/// The table as text, for `help`.
BOLT_API std::string log_help();

}  // namespace bolt

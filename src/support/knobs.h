// support/knobs.h
// Environment variables: every one the product reads is a row of one table, and is read through it.
//
// A row says whether the variable changes the code that is generated. Those that do are exported as one
// string that goes into every cache key, so a file compiled under other settings is never taken for this
// one's. Reading a name that is not in the table is an internal error: a variable cannot be added without
// deciding that question.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/export.h"

namespace bolt {

struct Knob {
  std::string_view name;
  std::string_view fallback;  // the value when the variable is not set
  bool changes_code;          // part of every cache key
  std::string_view meaning;
};
BOLT_API const std::vector<Knob>& knobs();

/// The variable's value now, or its default. Empty counts as not set.
BOLT_API std::string knob(std::string_view name);
/// As an integer; Error(User) when it is not one.
BOLT_API int64_t knob_int(std::string_view name);
/// 0, false, no, off: false; 1, true, yes, on: true; anything else Error(User).
BOLT_API bool knob_bool(std::string_view name);
/// Is `item` in the comma-separated list?
BOLT_API bool knob_has(std::string_view name, std::string_view item);
/// "NAME=value;" of those that change generated code and are not at their default.
BOLT_API std::string knobs_for_cache_key();

}  // namespace bolt

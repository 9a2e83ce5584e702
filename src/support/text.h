// support/text.h
// Small text tools that printers and parsers of every stage share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/export.h"

namespace bolt {

BOLT_API std::string_view trim(std::string_view text);
/// Parts between separators; "" gives no part at all.
BOLT_API std::vector<std::string_view> split(std::string_view text, char separator);
BOLT_API bool starts_with(std::string_view text, std::string_view prefix);
/// In double quotes, with \" \\ \n and \xHH.
BOLT_API std::string quoted(std::string_view text);
/// The shortest decimal that reads back as the same double; always with '.', 'e', inf or nan, so that it is
/// not an integer.
BOLT_API std::string number(double value);
/// The candidate nearest to `word` if it is near enough to be a slip of the pen, else "".
BOLT_API std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

/// FNV-1a, 64 bits, for names of dumps and buckets; cache keys use their own longer hash.
BOLT_API uint64_t hash_text(std::string_view text);

}  // namespace bolt

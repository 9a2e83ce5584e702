// support/by_name.h
// Rows {what is known, "the names that it is known of"} -> what is known, by name. Tables over many short
// names are written so: each name once, and as many in a line as there is room for.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>

#include "support/text.h"

namespace bolt {

template <class Known, size_t n>
std::unordered_map<std::string_view, Known> by_name(const std::pair<Known, std::string_view> (&rows)[n]) {
  std::unordered_map<std::string_view, Known> made;
  for (const auto& [known, names] : rows)
    for (std::string_view name : split(names, ' ')) made.emplace(name, known);
  return made;
}

}  // namespace bolt

// guard/relations.cpp
#include "guard/relations.h"

#include <algorithm>
#include <utility>

namespace bolt::guard {
namespace {

/// Two places of `apart` that hold one object; nulls: there are none.
std::pair<const Source*, const Source*> same_in(const Apart& apart, const std::vector<PyObject*>& objects) {
  using Place = std::pair<PyObject*, const Source*>;
  auto place = [&](const Source* s) { return Place(objects[s->reg], s); };
  auto before = [](const Place& a, const Place& b) { return a.first < b.first; };
  std::vector<Place> each;
  each.reserve(apart.each.size());
  for (const Source* source : apart.each) each.push_back(place(source));
  std::sort(each.begin(), each.end(), before);
  const auto twice = std::adjacent_find(each.begin(), each.end(),
                                        [](const Place& a, const Place& b) { return a.first == b.first; });
  if (twice != each.end()) return {twice->second, std::next(twice)->second};
  for (const Source* source : apart.others) {
    const Place other = place(source);
    const auto at = std::lower_bound(each.begin(), each.end(), other, before);
    if (at != each.end() && at->first == other.first) return {source, at->second};
  }
  return {};
}

}  // namespace

bool Relations::hold(const std::vector<PyObject*>& objects, const std::vector<std::string>& root_names,
                     std::string* why) const {
  auto fail = [&](const Source* a, bool same, const Source* b) {
    if (why) *why = a->str(root_names) + (same ? " is " : " is not ") + b->str(root_names) + " (no longer)";
    return false;
  };
  for (const Alias& alias : aliases) {
    const bool same = objects[alias.a->reg] == objects[alias.b->reg];
    if (same != alias.same) return fail(alias.a, alias.same, alias.b);
  }
  for (const Apart* each : apart)
    if (auto [a, b] = same_in(*each, objects); a) return fail(a, false, b);
  return true;
}

}  // namespace bolt::guard

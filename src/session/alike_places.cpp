// session/alike_places.cpp
#include "session/alike_places.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

namespace bolt::session {
namespace {

/// The place with each of its indices, one at a time, left open. Places are texts, since what was at them is
/// made anew by each call, or lies in another process: an index is a number in brackets, of whatever kind its
/// container is.
std::vector<std::string> patterns_of(const std::string& place) {
  std::vector<std::string> all;
  for (size_t at = place.find('['); at != std::string::npos; at = place.find('[', at + 1)) {
    size_t end = at + 1;
    while (end < place.size() && std::isdigit(static_cast<unsigned char>(place[end]))) ++end;
    if (end > at + 1 && end < place.size() && place[end] == ']')
      all.push_back(place.substr(0, at + 1) + "*" + place.substr(end));
  }
  return all;
}

}  // namespace

void AlikePlaces::learn(const std::set<std::string>& differ) {
  if (known_ == differ.size()) return;
  known_ = differ.size();
  std::map<std::string, int> times;
  for (const std::string& place : differ)
    for (const std::string& pattern : patterns_of(place))
      if (++times[pattern] > 1) patterns_.insert(pattern);
}

bool AlikePlaces::hold(const std::set<std::string>& differ, const std::string& place) {
  learn(differ);
  const auto known = [&](const std::string& pattern) { return patterns_.contains(pattern); };
  return !patterns_.empty() && std::ranges::any_of(patterns_of(place), known);
}

bool AlikePlaces::may_lie_within(const std::set<std::string>& differ, const std::string& place) {
  learn(differ);
  if (patterns_.empty()) return false;
  const auto begins_one = [&](const std::string& beginning) {
    const auto at = patterns_.lower_bound(beginning);
    return at != patterns_.end() && at->starts_with(beginning);
  };
  return begins_one(place) || std::ranges::any_of(patterns_of(place), begins_one);
}

}  // namespace bolt::session

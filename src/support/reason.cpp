// support/reason.cpp
#include "support/reason.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>

namespace bolt {
namespace {

struct ReasonText {
  const char *id, *text, *hint;
  bool of_a_name;  ///< its first argument may have a hint of its own
};
constexpr ReasonText kRows[] = {
#define REASON(id, text, hint) {#id, text, hint, false},
#define REASON_OF(id, text, hint) {#id, text, hint, true},
#include "support/reasons.def"
};

struct Hint {
  std::string_view name;
  const char* hint;
};
constexpr Hint kHints[] = {
#define HINT(name, hint) {name, hint},
#include "support/reasons.def"
};

constexpr std::string_view kPlace = "{}";
constexpr const char* kWithin = ", in Python that runs within this instruction";
constexpr const char* kHintWithin = "call that code from the model itself instead of from C";

const ReasonText& row_of(Why why) { return kRows[static_cast<size_t>(why)]; }

const char* hint_of(std::string_view name) {
  const auto* row = std::find_if(std::begin(kHints), std::end(kHints),
                                 [&](const Hint& each) { return name.starts_with(each.name); });
  return row == std::end(kHints) ? "" : row->hint;
}

}  // namespace

Reason Reason::within_instruction() const {
  Reason inner = *this;
  inner.within = true;
  return inner;
}

Reason Reason::where_it_ends(const Reason& at) const {
  Reason found = *this;
  found.end = at.end ? at.end : std::make_shared<const Reason>(at);
  return found;
}

const char* Reason::id() const { return row_of(why).id; }

std::string Reason::text() const {
  std::string_view left = row_of(why).text;
  std::string out;
  for (const std::string& each : said) {
    const size_t at = std::min(left.find(kPlace), left.size());
    out.append(left.substr(0, at)).append(each);
    left.remove_prefix(std::min(at + kPlace.size(), left.size()));
  }
  out.append(left);
  if (end) out.append(" where the region ends: ").append(end->text());
  return out.append(within ? kWithin : "");
}

const char* Reason::hint() const {
  const ReasonText& row = row_of(why);
  const char* of_name = row.of_a_name && !said.empty() ? hint_of(said[0]) : "";
  if (*of_name) return of_name;
  if (*row.hint) return row.hint;
  if (end) return end->hint();
  return within ? kHintWithin : "";
}

}  // namespace bolt

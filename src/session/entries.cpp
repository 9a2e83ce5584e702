// session/entries.cpp
#include "session/entries.h"

#include <algorithm>
#include <atomic>

namespace bolt::session {
namespace {

bool same_keywords(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b) return (a ? PyTuple_GET_SIZE(a) : 0) == (b ? PyTuple_GET_SIZE(b) : 0);
  return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

}  // namespace

int64_t next_serial() {
  static std::atomic<int64_t> last{0};
  return ++last;
}

bool has_form_of(const Given& given, const CallEntry& entry) {
  return given.nargs == entry.nargs && same_keywords(given.kwnames, entry.kwnames.get());
}

bool computes(const CallEntry& entry) { return !entry.region || !entry.region->tape().entries.empty(); }

int64_t count_computing(const Site& site) {
  return std::count_if(site.entries.begin(), site.entries.end(),
                       [](const auto& entry) { return computes(*entry); });
}

}  // namespace bolt::session

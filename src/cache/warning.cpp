// cache/warning.cpp
#include "cache/warning.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "support/log.h"

namespace bolt::cache {
namespace {

std::mutex mutex;

std::function<void(const std::string&)>& handler() {
  static std::function<void(const std::string&)> given;
  return given;
}

}  // namespace

void on_warning(std::function<void(const std::string&)> given) {
  std::lock_guard lock(mutex);
  handler() = std::move(given);
}

void warn_once(const std::string& about, const std::string& what) {
  static auto* warned = new std::set<std::string>();  // never destroyed: a compilation may end after main
  std::lock_guard lock(mutex);
  if (!warned->insert(about).second) return;
  if (handler())
    handler()(what);
  else if (log_wanted("cache"))
    log("cache", what);
  else
    std::fprintf(stderr, "torchbolt: %s\n", what.c_str());
}

}  // namespace bolt::cache

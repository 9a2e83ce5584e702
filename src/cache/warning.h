// cache/warning.h
// What is wrong with a cache -> one line for the user, once for each cache in a process.
#pragma once

#include <functional>
#include <string>

#include "support/export.h"

namespace bolt::cache {

/// Where warnings go. Default: the log `cache` if it is wanted, or else standard error, since threads without
/// the GIL warn, too.
BOLT_API void on_warning(std::function<void(const std::string&)> handler);

/// `about` names the cache: it has one warning, the first.
void warn_once(const std::string& about, const std::string& what);

}  // namespace bolt::cache

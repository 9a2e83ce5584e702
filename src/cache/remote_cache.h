// cache/remote_cache.h
// Key text -> bytes, on a server that machines share (redis.h).
//
// What is read is run, and a server is written by many. So each entry is signed (HMAC-SHA-256, with the
// user's TORCHBOLT_CACHE_KEY), together with its name, which is the SHA-256 of the key text: an entry that
// was changed, is of another secret or lies under another's name counts as absent. Without a secret there is
// no remote cache. A server that fails is not asked again in this process: it costs one wait, which is short,
// and one warning. Nothing here ever throws.
//
//     value: magic | signature of name and bytes | bytes
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "cache/redis.h"
#include "support/export.h"

namespace bolt::cache {

class BOLT_API RemoteCache {
 public:
  /// An empty address: there is none. What is wrong with the address or the secret is warned of here.
  RemoteCache(const std::string& url, std::string secret, std::chrono::milliseconds patience);
  /// Of TORCHBOLT_REMOTE_CACHE, TORCHBOLT_CACHE_KEY and TORCHBOLT_REMOTE_CACHE_TIMEOUT_MS, read at the first
  /// call.
  static RemoteCache& global();

  std::optional<std::string> read(std::string_view key);
  void write(std::string_view key, std::string_view bytes);

  static std::string name(std::string_view key);

 private:
  /// Calls `use` with the server; what fails ends the use of it.
  template <typename Use>
  void with_server(const Use& use);
  std::string signature(std::string_view name, std::string_view bytes) const;

  std::string shown_, secret_;
  std::mutex mutex_;
  std::unique_ptr<Redis> server_;  ///< null: none, or no longer
};

}  // namespace bolt::cache

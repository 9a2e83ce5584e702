// cache/remote_cache.cpp
#include "cache/remote_cache.h"

#include <algorithm>
#include <utility>

#include "cache/sha256.h"
#include "cache/warning.h"
#include "support/knobs.h"

namespace bolt::cache {
namespace {

constexpr std::string_view kEntryMagic = "BOLTREM1";
constexpr size_t kShortestSecret = 16;                   // as in torchbolt/artifacts.py
constexpr int64_t kSecondsToLive = int64_t{30} * 86400;  // what builds of long ago wrote goes by itself
constexpr size_t kLargestEntry = size_t{64} << 20;

std::string why_no_secret(const std::string& secret) {
  if (secret.size() >= kShortestSecret) return "";
  return std::string("TORCHBOLT_CACHE_KEY is ") +
         (secret.empty() ? "not set" : "shorter than 16 characters") +
         ": its entries are machine code and are signed with that secret, which all machines have to share "
         "(`openssl rand -hex 32` makes one)";
}

}  // namespace

RemoteCache::RemoteCache(const std::string& url, std::string secret, std::chrono::milliseconds patience)
    : secret_(std::move(secret)) {
  if (url.empty()) return;
  std::string why = why_no_secret(secret_);
  if (why.empty() && redis_client().empty())
    why = "this build of torchbolt has no client for Redis: it was made where hiredis was not installed";
  try {
    RedisAddress address = redis_address(url);
    shown_ = address.shown();
    if (why.empty()) server_ = std::make_unique<Redis>(std::move(address), patience);
  } catch (const RedisError& error) {
    why = std::string("of its address: ") + error.what();
  }
  if (!why.empty())
    warn_once("TORCHBOLT_REMOTE_CACHE", "the cache of TORCHBOLT_REMOTE_CACHE is not used, because " + why);
}

RemoteCache& RemoteCache::global() {
  // Never destroyed: a compilation may write while the process ends.
  static auto* cache = [] {
    const bool wanted = knob_bool("TORCHBOLT_CACHE");
    const int64_t patience = std::clamp<int64_t>(knob_int("TORCHBOLT_REMOTE_CACHE_TIMEOUT_MS"), 1, 60000);
    return new RemoteCache(wanted ? knob("TORCHBOLT_REMOTE_CACHE") : "", knob("TORCHBOLT_CACHE_KEY"),
                           std::chrono::milliseconds(patience));
  }();
  return *cache;
}

std::string RemoteCache::name(std::string_view key) { return "torchbolt:1:" + hex(sha256(key)); }

std::string RemoteCache::signature(std::string_view name, std::string_view bytes) const {
  return hmac_sha256(secret_, std::string(name).append("\n").append(bytes));
}

template <typename Use>
void RemoteCache::with_server(const Use& use) {
  std::lock_guard lock(mutex_);
  if (!server_) return;
  try {
    use(*server_);
  } catch (const std::exception& error) {  // also of a thread or memory that there is none of
    server_ = nullptr;
    warn_once(shown_,
              "the shared cache " + shown_ + " is not used any longer in this process: " + error.what());
  }
}

std::optional<std::string> RemoteCache::read(std::string_view key) {
  const std::string name = RemoteCache::name(key);
  std::optional<std::string> value;
  with_server([&](Redis& server) { value = server.get(name); });
  if (!value) return std::nullopt;
  const size_t head = kEntryMagic.size() + kDigestBytes;
  const std::string_view all = *value;
  if (all.size() >= head && all.substr(0, kEntryMagic.size()) == kEntryMagic &&
      equal_digests(all.substr(kEntryMagic.size(), kDigestBytes), signature(name, all.substr(head))))
    return value->substr(head);
  warn_once(shown_,
            "an entry of the shared cache " + shown_ +
                " is ignored and will be rewritten: its signature does not hold, so it was changed or made "
                "with another TORCHBOLT_CACHE_KEY (" +
                name + ")");
  return std::nullopt;
}

void RemoteCache::write(std::string_view key, std::string_view bytes) {
  if (bytes.size() > kLargestEntry) return;
  with_server([&](Redis& server) {
    const std::string name = RemoteCache::name(key);
    std::string value(kEntryMagic);
    value.append(signature(name, bytes)).append(bytes);
    server.set(name, value, kSecondsToLive);
  });
}

}  // namespace bolt::cache

// cache/redis.h
// redis://[[user]:password@]host[:port][/database] -> GET and SET over one connection of hiredis's.
//
// hiredis connects, writes commands and reads answers. What it leaves open is done here: everything has one
// deadline (hiredis knows one for each read, so a server that sends a byte now and then would never miss it),
// also finding the host's address, which the system may take long for: that is done on a thread that nobody
// waits for any longer than that. What goes wrong is an error with the reason, and the connection is closed,
// since one of which half an answer was read is of no use. A fork has the parent's connection, and makes one
// of its own. hiredis is linked into the core where it was found at build time (cmake/Hiredis.cmake); in a
// build without, every question is an error.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/export.h"

struct redisContext;

namespace bolt::cache {

struct RedisError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct RedisAddress {
  std::string host, port = "6379", user, password, database;
  /// Without user and password.
  std::string shown() const { return "redis://" + host + ":" + port; }
};
/// Throws RedisError for what is no such address.
BOLT_API RedisAddress redis_address(std::string_view url);

/// hiredis and its version; empty in a build without, which speaks to no server.
BOLT_API std::string redis_client();

/// Of one thread at a time. All methods throw RedisError.
class BOLT_API Redis {
 public:
  Redis(RedisAddress address, std::chrono::milliseconds patience)
      : address_(std::move(address)), patience_(patience) {}

  std::optional<std::string> get(std::string_view key);
  void set(std::string_view key, std::string_view value, int64_t seconds_to_live);

 private:
  using Clock = std::chrono::steady_clock;
  struct Closing {
    void operator()(redisContext* connection) const;
  };

  std::optional<std::string> ask(const std::vector<std::string_view>& command);
  bool is_connected() const;
  void connect();
  void log_in();
  std::optional<std::string> exchange(const std::vector<std::string_view>& command);
  void send_all();
  void wait_for(short event);

  RedisAddress address_;
  std::chrono::milliseconds patience_;
  Clock::time_point deadline_;
  std::unique_ptr<redisContext, Closing> connection_;
  pid_t connected_by_ = 0;
};

}  // namespace bolt::cache

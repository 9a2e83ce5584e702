// cache/redis.h
// redis://[[user]:password@]host[:port][/database] -> GET and SET over one connection.
//
// Of Redis's protocol (RESP 2) this speaks what two commands need: commands go as arrays of texts with their
// lengths, answers are a status, an error, or a text. Everything has one deadline, also finding the host's
// address, which the system may take long for: that is done on a thread that nobody waits for any longer than
// that. What goes wrong is an error with the reason, and the connection is closed, since one of which half an
// answer was read is of no use. A fork has the parent's connection, and makes one of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cache/own_folder.h"
#include "support/export.h"

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

/// Of one thread at a time. All methods throw RedisError.
class BOLT_API Redis {
 public:
  Redis(RedisAddress address, std::chrono::milliseconds patience)
      : address_(std::move(address)), patience_(patience) {}

  std::optional<std::string> get(std::string_view key);
  void set(std::string_view key, std::string_view value, int64_t seconds_to_live);

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<std::string> ask(const std::vector<std::string_view>& command);
  void connect();
  void log_in();
  std::optional<std::string> exchange(const std::vector<std::string_view>& command);
  std::optional<std::string> answer();
  std::string line();
  void fill();
  void send_all(std::string_view bytes);
  void wait_for(short event);

  RedisAddress address_;
  std::chrono::milliseconds patience_;
  Clock::time_point deadline_;
  Descriptor socket_;
  pid_t connected_by_ = 0;
  std::string received_;
};

}  // namespace bolt::cache

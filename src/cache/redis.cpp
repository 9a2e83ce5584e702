// cache/redis.cpp
#include "cache/redis.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <future>
#include <thread>
#include <utility>

#ifdef BOLT_HIREDIS
#include <hiredis.h>
#endif

namespace bolt::cache {
namespace {

/// Takes what stands before `mark` off; without one nothing.
std::string_view take_before(std::string_view& text, char mark) {
  const size_t at = text.rfind(mark);
  if (at == text.npos) return {};
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + 1);
  return before;
}

}  // namespace

RedisAddress redis_address(std::string_view url) {
  constexpr std::string_view kScheme = "redis://";
  if (url.substr(0, kScheme.size()) != kScheme)
    throw RedisError("only redis://[[user]:password@]host[:port][/database] is known");
  url.remove_prefix(kScheme.size());
  RedisAddress address;
  const std::string_view login = take_before(url, '@');
  address.user = login.substr(0, login.find(':'));
  if (const size_t colon = login.find(':'); colon != login.npos) address.password = login.substr(colon + 1);
  if (const size_t slash = url.find('/'); slash != url.npos) {
    address.database = url.substr(slash + 1);
    url = url.substr(0, slash);
  }
  const size_t colon = url.rfind(':');
  const bool is_port = colon != url.npos && url.find(']', colon) == url.npos;
  if (is_port) address.port = url.substr(colon + 1);
  address.host = is_port ? url.substr(0, colon) : url;
  if (address.host.size() > 2 && address.host.front() == '[')
    address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || address.port.empty()) throw RedisError("it names no host");
  return address;
}

std::optional<std::string> Redis::get(std::string_view key) { return ask({"GET", key}); }

void Redis::set(std::string_view key, std::string_view value, int64_t seconds_to_live) {
  const std::string seconds = std::to_string(seconds_to_live);
  ask({"SET", key, value, "EX", seconds});
}

#ifdef BOLT_HIREDIS

namespace {

constexpr size_t kLargestValue = size_t{256} << 20;

/// Of a host and a port, as numbers, so that hiredis has nothing to look up.
struct Endpoint {
  std::string host;
  int port;
};
using Endpoints = std::vector<Endpoint>;

Endpoints resolve(const std::string& host, const std::string& port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int wrong = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); wrong != 0)
    throw RedisError(gai_strerror(wrong));
  Endpoints all;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    char number[NI_MAXHOST], service[NI_MAXSERV];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, number, sizeof number, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
      all.push_back({number, std::stoi(service)});
  }
  freeaddrinfo(found);
  return all;
}

/// resolve(), but not waited for longer than that; its thread then ends by itself.
Endpoints resolve_until(const RedisAddress& at, std::chrono::steady_clock::time_point deadline) {
  auto task = std::make_shared<std::packaged_task<Endpoints()>>(
      [host = at.host, port = at.port] { return resolve(host, port); });
  std::future<Endpoints> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (result.wait_until(deadline) != std::future_status::ready)
    throw RedisError("its name takes too long to find");
  return result.get();
}

/// While one lives, a write of this thread to a connection that was closed is an error and no signal, whose
/// default would end the process: hiredis writes without saying so.
class NoBrokenPipes {
 public:
  NoBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t waiting;
    sigpending(&waiting);
    waited_before_ = sigismember(&waiting, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipes() {
    const timespec at_once{};
    if (!waited_before_)
      while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipes(const NoBrokenPipes&) = delete;
  NoBrokenPipes& operator=(const NoBrokenPipes&) = delete;

 private:
  sigset_t pipe_, before_;
  bool waited_before_;
};

/// hiredis's words for what went wrong with a connection.
[[noreturn]] void fail(const redisContext& connection) {
  switch (connection.err) {
    case REDIS_ERR_IO: throw RedisError(std::strerror(errno));
    case REDIS_ERR_EOF: throw RedisError("it closed the connection");
    case REDIS_ERR_PROTOCOL:
      throw RedisError(std::string("it does not speak Redis's protocol: ") + connection.errstr);
    default: throw RedisError(connection.errstr);
  }
}

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};

std::optional<std::string> text_of(const redisReply& reply) {
  switch (reply.type) {
    case REDIS_REPLY_NIL: return std::nullopt;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS: return std::string(reply.str, reply.len);
    case REDIS_REPLY_ERROR: throw RedisError("it says: " + std::string(reply.str, reply.len));
    default: throw RedisError("its answer is no text");
  }
}

}  // namespace

std::string redis_client() {
  return "hiredis " + std::to_string(HIREDIS_MAJOR) + "." + std::to_string(HIREDIS_MINOR) + "." +
         std::to_string(HIREDIS_PATCH);
}

void Redis::Closing::operator()(redisContext* connection) const { redisFree(connection); }

std::optional<std::string> Redis::ask(const std::vector<std::string_view>& command) {
  deadline_ = Clock::now() + patience_;
  const NoBrokenPipes quiet;
  try {
    if (!is_connected()) connect();
    return exchange(command);
  } catch (const RedisError&) {
    connection_ = nullptr;
    throw;
  }
}

/// A server closes what was idle for long, or was started anew; and a fork must not write to its parent's.
bool Redis::is_connected() const {
  if (!connection_ || connected_by_ != getpid()) return false;
  char byte;
  return recv(connection_->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void Redis::connect() {
  std::string why = "it has no address";
  for (const Endpoint& at : resolve_until(address_, deadline_)) {
    connection_.reset(redisConnectNonBlock(at.host.c_str(), at.port));
    if (!connection_) throw RedisError("there is no memory");
    if (connection_->err) {
      why = connection_->errstr;
      continue;
    }
    wait_for(POLLOUT);
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(connection_->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return log_in();
    why = std::strerror(error);
  }
  throw RedisError(why);
}

void Redis::log_in() {
  const int yes = 1;
  setsockopt(connection_->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  fcntl(connection_->fd, F_SETFD, FD_CLOEXEC);
  connected_by_ = getpid();
  if (!address_.user.empty())
    exchange({"AUTH", address_.user, address_.password});
  else if (!address_.password.empty())
    exchange({"AUTH", address_.password});
  if (!address_.database.empty()) exchange({"SELECT", address_.database});
}

std::optional<std::string> Redis::exchange(const std::vector<std::string_view>& command) {
  std::vector<const char*> words;
  std::vector<size_t> sizes;
  for (std::string_view word : command) {
    words.push_back(word.data());
    sizes.push_back(word.size());
  }
  redisContext& connection = *connection_;
  if (redisAppendCommandArgv(&connection, static_cast<int>(words.size()), words.data(), sizes.data()) !=
      REDIS_OK)
    fail(connection);
  send_all();
  for (size_t read = 0;;) {
    void* reply = nullptr;
    if (redisGetReplyFromReader(&connection, &reply) != REDIS_OK) fail(connection);
    if (reply) return text_of(*std::unique_ptr<redisReply, FreeReply>(static_cast<redisReply*>(reply)));
    if (read > kLargestValue) throw RedisError("its value is too large");
    wait_for(POLLIN);
    const size_t before = connection.reader->len;
    if (redisBufferRead(&connection) != REDIS_OK) fail(connection);
    read += connection.reader->len - before;
  }
}

void Redis::send_all() {
  for (int all_sent = 0;;) {
    if (redisBufferWrite(connection_.get(), &all_sent) != REDIS_OK) fail(*connection_);
    if (all_sent) return;
    wait_for(POLLOUT);
  }
}

void Redis::wait_for(short event) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
  pollfd waited{connection_->fd, event, 0};
  if (left <= 0 || poll(&waited, 1, static_cast<int>(left)) == 0)
    throw RedisError("it does not answer within " + std::to_string(patience_.count()) + " ms");
}

#else

std::string redis_client() { return {}; }

void Redis::Closing::operator()(redisContext*) const {}

std::optional<std::string> Redis::ask(const std::vector<std::string_view>&) {
  throw RedisError("this build has no client");
}

#endif

}  // namespace bolt::cache

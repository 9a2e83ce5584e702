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
#include <charconv>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace bolt::cache {
namespace {

constexpr size_t kLongestLine = 4096;
constexpr int64_t kLargestValue = int64_t{256} << 20;

using Addresses = std::shared_ptr<addrinfo>;

Addresses resolve(const std::string& host, const std::string& port) {
  addrinfo wanted{}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  if (const int wrong = getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); wrong != 0)
    throw RedisError(gai_strerror(wrong));
  return {found, freeaddrinfo};
}

/// resolve(), but not waited for longer than that; its thread then ends by itself.
Addresses resolve_until(const RedisAddress& at, std::chrono::steady_clock::time_point deadline) {
  auto task = std::make_shared<std::packaged_task<Addresses()>>(
      [host = at.host, port = at.port] { return resolve(host, port); });
  std::future<Addresses> result = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (result.wait_until(deadline) != std::future_status::ready)
    throw RedisError("its name takes too long to find");
  return result.get();
}

int64_t number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw RedisError("it does not speak Redis's protocol");
  return number;
}

/// Takes what stands before `mark` off; without one nothing.
std::string_view take_before(std::string_view& text, char mark) {
  const size_t at = text.rfind(mark);
  if (at == text.npos) return {};
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + 1);
  return before;
}

std::string command_text(const std::vector<std::string_view>& command) {
  std::string text = "*" + std::to_string(command.size()) + "\r\n";
  for (std::string_view word : command) {
    text += "$" + std::to_string(word.size()) + "\r\n";
    text.append(word).append("\r\n");
  }
  return text;
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

std::optional<std::string> Redis::ask(const std::vector<std::string_view>& command) {
  deadline_ = Clock::now() + patience_;
  try {
    const bool connected = socket_ && connected_by_ == getpid();
    if (connected) {
      char byte;  // a server closes what was idle for long
      if (recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) socket_ = Descriptor();
    }
    if (!connected || !socket_) connect();
    return exchange(command);
  } catch (const RedisError&) {
    socket_ = Descriptor();
    throw;
  }
}

void Redis::connect() {
  std::string why = "it has no address";
  const Addresses all = resolve_until(address_, deadline_);
  for (const addrinfo* at = all.get(); at; at = at->ai_next) {
    socket_ = Descriptor(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) continue;
    int error = ::connect(socket_.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      wait_for(POLLOUT);
      socklen_t size = sizeof error;
      getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return log_in();
    why = std::strerror(error);
  }
  throw RedisError(why);
}

void Redis::log_in() {
  const int yes = 1;
  setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  connected_by_ = getpid();
  received_.clear();
  if (!address_.user.empty())
    exchange({"AUTH", address_.user, address_.password});
  else if (!address_.password.empty())
    exchange({"AUTH", address_.password});
  if (!address_.database.empty()) exchange({"SELECT", address_.database});
}

std::optional<std::string> Redis::exchange(const std::vector<std::string_view>& command) {
  send_all(command_text(command));
  return answer();
}

std::optional<std::string> Redis::answer() {
  const std::string head = line();
  const char kind = head.empty() ? '\0' : head[0];
  if (kind == '+') return head.substr(1);
  if (kind == '-') throw RedisError("it says: " + head.substr(1));
  if (kind != '$') throw RedisError("it does not speak Redis's protocol");
  const int64_t length = number_in(std::string_view(head).substr(1));
  if (length < 0) return std::nullopt;
  if (length > kLargestValue) throw RedisError("its value is too large");
  const auto size = static_cast<size_t>(length);
  while (received_.size() < size + 2) fill();
  std::string value = received_.substr(0, size);
  received_.erase(0, size + 2);
  return value;
}

std::string Redis::line() {
  size_t end;
  while ((end = received_.find("\r\n")) == received_.npos) {
    if (received_.size() > kLongestLine) throw RedisError("it does not speak Redis's protocol");
    fill();
  }
  std::string text = received_.substr(0, end);
  received_.erase(0, end + 2);
  return text;
}

void Redis::fill() {
  char bytes[1 << 16];
  ssize_t n;
  while ((n = recv(socket_.get(), bytes, sizeof bytes, 0)) < 0) {
    if (errno != EAGAIN && errno != EINTR) throw RedisError(std::strerror(errno));
    wait_for(POLLIN);
  }
  if (n == 0) throw RedisError("it closed the connection");
  received_.append(bytes, static_cast<size_t>(n));
}

void Redis::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) throw RedisError(std::strerror(errno));
    wait_for(POLLOUT);
  }
}

void Redis::wait_for(short event) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
  pollfd waited{socket_.get(), event, 0};
  if (left <= 0 || poll(&waited, 1, static_cast<int>(left)) == 0)
    throw RedisError("it does not answer within " + std::to_string(patience_.count()) + " ms");
}

}  // namespace bolt::cache

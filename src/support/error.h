// support/error.h
// The three families of failure, so that every catch site knows what to tell the user.
//
//   User         the caller did something wrong: it becomes a Python exception at once.
//   Unsupported  this cannot be compiled, which is no bug: the region runs eagerly, and the reason is counted
//                and shown. A class of its own, since most that catch an error catch these alone.
//   Internal     one of our invariants is broken: the region falls back to eager with one warning that says
//                how to report it. Under TORCHBOLT_STRICT=1 it is raised.
//
// Nothing in the core aborts: a broken compiler must never take the user's process with it.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "support/export.h"

namespace bolt {

enum class ErrorKind { User, Unsupported, Internal };

class BOLT_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  ~Error() override;
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

class BOLT_API Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& what) : Error(ErrorKind::Unsupported, what) {}
  ~Unsupported() override;
};

namespace detail {
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}
[[noreturn]] BOLT_API void throw_internal(const char* file, int line, const char* condition,
                                          const std::string& message);
}  // namespace detail

template <typename... Parts>
[[noreturn]] void throw_unsupported(const Parts&... parts) {
  throw Unsupported(detail::concat(parts...));
}
template <typename... Parts>
[[noreturn]] void throw_user(const Parts&... parts) {
  throw Error(ErrorKind::User, detail::concat(parts...));
}

// The message is built only when the condition fails.
#define BOLT_CHECK(condition, ...)                                                                         \
  do {                                                                                                     \
    if (__builtin_expect(!(condition), 0))                                                                 \
      ::bolt::detail::throw_internal(__FILE__, __LINE__, #condition, ::bolt::detail::concat(__VA_ARGS__)); \
  } while (0)

}  // namespace bolt

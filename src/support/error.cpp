// support/error.cpp
#include "support/error.h"

#include <cstring>

namespace bolt {

Error::~Error() = default;
Unsupported::~Unsupported() = default;

namespace detail {
void throw_internal(const char* file, int line, const char* condition, const std::string& message) {
  const char* short_file = std::strstr(file, "src/");
  throw Error(ErrorKind::Internal,
              concat(message, " [", condition, " at ", short_file ? short_file : file, ":", line, "]"));
}
}  // namespace detail

}  // namespace bolt

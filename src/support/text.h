// support/text.h
// Small text tools that printers and parsers of every stage share.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "support/export.h"

namespace bolt {

BOLT_API std::string_view trim(std::string_view text);
/// Parts between separators; "" gives no part at all.
BOLT_API std::vector<std::string_view> split(std::string_view text, char separator);
BOLT_API bool starts_with(std::string_view text, std::string_view prefix);
/// In double quotes, with \" \\ \n and \xHH.
BOLT_API std::string quoted(std::string_view text);
/// The shortest decimal that reads back as the same double; always with '.', 'e', inf or nan, so that it is
/// not an integer.
BOLT_API std::string number(double value);
/// The candidate nearest to `word` if it is near enough to be a slip of the pen, else "".
BOLT_API std::string_view nearest(std::string_view word, const std::vector<std::string_view>& candidates);

/// A text that is kept once and as long as the process: for names of files and functions, which are few.
class BOLT_API Interned {
 public:
  Interned() = default;
  explicit Interned(std::string_view text);
  operator std::string_view() const { return text_ ? std::string_view(*text_) : std::string_view(); }
  const char* c_str() const { return text_ ? text_->c_str() : ""; }
  bool empty() const { return !text_ || text_->empty(); }
  friend bool operator==(Interned a, Interned b) { return a.text_ == b.text_; }
  friend std::ostream& operator<<(std::ostream& out, Interned text) { return out << std::string_view(text); }

 private:
  const std::string* text_ = nullptr;
};

/// FNV-1a, 64 bits, for names of dumps and buckets; cache keys use their own longer hash.
BOLT_API uint64_t hash_text(std::string_view text);

}  // namespace bolt

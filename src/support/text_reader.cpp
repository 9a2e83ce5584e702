// support/text_reader.cpp
#include "support/text_reader.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "support/text.h"

namespace bolt {
namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

/// How many characters at the start of `text` are a decimal number; `fraction`: more than digits and a sign.
size_t length_of_number(std::string_view text, bool* fraction) {
  size_t n = !text.empty() && text[0] == '-' ? 1 : 0;
  const std::string_view tail = text.substr(n);
  if ((starts_with(tail, "inf") || starts_with(tail, "nan")) && (tail.size() == 3 || !in_word(tail[3])))
    return *fraction = true, n + 3;
  for (; n < text.size(); ++n) {
    const char c = text[n];
    const bool behind_digits = n > 0 && (is_digit(text[n - 1]) || text[n - 1] == '.');
    const bool exponent = c == 'e' && behind_digits;
    const bool sign_of_exponent = (c == '-' || c == '+') && n > 0 && text[n - 1] == 'e';
    if (!is_digit(c) && c != '.' && !exponent && !sign_of_exponent) break;
    *fraction |= c == '.' || exponent;
  }
  return n;
}

}  // namespace

void TextReader::fail(std::string_view message) const {
  const auto line =
      1 + std::count(all_.begin(), all_.end() - static_cast<std::ptrdiff_t>(rest_.size()), '\n');
  const std::string_view near = rest_.substr(0, std::min<size_t>(rest_.find('\n'), 40));
  throw_user("line ", line, ": ", message, near.empty() ? "" : " at '", near, near.empty() ? "" : "'");
}

void TextReader::rethrow(const Error& error) const {
  if (error.kind() == ErrorKind::User && starts_with(error.what(), "line ")) throw error;
  fail(error.what());
}

bool TextReader::begins_comment() const {
  return rest_[0] == ';' && (rest_.size() == all_.size() || is_blank(rest_.data()[-1]));
}

void TextReader::skip_blanks() {
  while (!rest_.empty()) {
    if (is_blank(rest_[0]))
      rest_.remove_prefix(1);
    else if (begins_comment())
      rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
    else
      return;
  }
}

bool TextReader::at_end() {
  skip_blanks();
  return rest_.empty();
}

bool TextReader::sees(std::string_view token) {
  skip_blanks();
  if (!starts_with(rest_, token)) return false;
  const bool is_word = in_word(token.back()) && token.back() != '.';
  return !is_word || rest_.size() == token.size() || !in_word(rest_[token.size()]);
}

bool TextReader::accept(std::string_view token) {
  if (!sees(token)) return false;
  rest_.remove_prefix(token.size());
  return true;
}

void TextReader::expect(std::string_view token) {
  if (!accept(token)) fail("expected '" + std::string(token) + "'");
}

std::string_view TextReader::word() {
  skip_blanks();
  size_t n = 0;
  while (n < rest_.size() && in_word(rest_[n])) ++n;
  const std::string_view w = rest_.substr(0, n);
  rest_.remove_prefix(n);
  return w;
}

std::string_view TextReader::name() {
  const std::string_view w = word();
  if (w.empty()) fail("expected a name");
  return w;
}

std::string_view TextReader::name_after(std::string_view sigil) {
  expect(sigil);
  return name();
}

std::string_view TextReader::rest_of_line() {
  const std::string_view line = rest_.substr(0, std::min(rest_.find('\n'), rest_.size()));
  rest_.remove_prefix(line.size());
  return trim(line);
}

int64_t TextReader::integer() {
  skip_blanks();
  int64_t v = 0;
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), v);
  if (error != std::errc()) fail("expected an integer");
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return v;
}

int TextReader::number_after(std::string_view prefix) {
  skip_blanks();
  const bool follows = starts_with(rest_, prefix) && rest_.size() > prefix.size();
  if (!follows || !is_digit(rest_[prefix.size()])) fail("expected " + std::string(prefix) + "<number>");
  rest_.remove_prefix(prefix.size());
  const int64_t v = integer();
  if (v > INT32_MAX) fail("a number out of range before");
  return static_cast<int>(v);
}

std::optional<double> TextReader::real() {
  skip_blanks();
  bool fraction = false;
  length_of_number(rest_, &fraction);
  return fraction ? std::optional(number()) : std::nullopt;
}

double TextReader::number() {
  skip_blanks();
  bool fraction = false;
  const std::string digits(rest_.substr(0, length_of_number(rest_, &fraction)));
  char* end = nullptr;
  const double v = std::strtod(digits.c_str(), &end);
  if (end == digits.c_str()) fail("expected a number");
  rest_.remove_prefix(static_cast<size_t>(end - digits.c_str()));
  return v;
}

std::string TextReader::string() {
  expect("\"");
  std::string out;
  while (!rest_.empty() && rest_[0] != '"') {
    char c = rest_[0];
    rest_.remove_prefix(1);
    if (c == '\\' && !rest_.empty()) {
      c = rest_[0];
      rest_.remove_prefix(1);
      if (c == 'n') c = '\n';
      if (c == 'x' && rest_.size() >= 2) {
        c = static_cast<char>(std::strtol(std::string(rest_.substr(0, 2)).c_str(), nullptr, 16));
        rest_.remove_prefix(2);
      }
    }
    out += c;
  }
  if (rest_.empty()) fail("a string without end");
  rest_.remove_prefix(1);
  return out;
}

DType TextReader::dtype() {
  const std::string_view w = word();
  const std::optional<DType> t = dtype_from_name(w);
  if (!t) fail("'" + std::string(w) + "' is no element type");
  return *t;
}

Sym TextReader::sym() {
  skip_blanks();
  return parse_sym(rest_);
}

Syms TextReader::syms(std::string_view close) {
  Syms out;
  if (accept(close)) return out;
  do out.push_back(sym());
  while (accept(","));
  expect(close);
  return out;
}

}  // namespace bolt

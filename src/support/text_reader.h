// support/text_reader.h
// The characters of a text form -> its words, numbers, strings and sizes: the lexer that the parsers of all
// stages share (graph/parser.cpp, loops/kernel_text.cpp, loops/plan_parser.cpp, record/parse.cpp).
//
// A parser holds one reader and asks for what must or may come next; parsers of parts (a type, a kernel) are
// functions of a reader, so that a text of one stage can hold parts of another and every fault names its line
// in the whole text. A ; at the start of a line or behind a blank begins a comment, which goes to the end of
// the line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/dtype.h"
#include "support/error.h"
#include "support/export.h"
#include "support/sym.h"

namespace bolt {

class BOLT_API TextReader {
 public:
  /// `text` must outlive it.
  explicit TextReader(std::string_view text) : all_(text), rest_(text) {}

  /// Throws Error(User): "line 7: expected ',' at 'what stands there'".
  [[noreturn]] void fail(std::string_view message) const;
  /// An error of a rule that knows no lines (a shape, a size), as a fault of the line where the reader
  /// stands.
  [[noreturn]] void rethrow(const Error& error) const;
  /// Nothing but blanks and comments is left.
  bool at_end();

  /// Does `token` stand here? A token that ends in a letter is a whole word: `in` is no prefix of `inout`.
  bool sees(std::string_view token);
  /// Does `token` stand here? Then it is taken.
  bool accept(std::string_view token);
  void expect(std::string_view token);
  /// Letters, digits, _ and . ; may be empty.
  std::string_view word();
  /// One that is not empty.
  std::string_view name();
  std::string_view name_after(std::string_view sigil);
  /// What is left of this line, without the blanks around it.
  std::string_view rest_of_line();

  int64_t integer();
  /// The number right behind `prefix`: 12 of %b12.
  int number_after(std::string_view prefix);
  /// A decimal with a point or an exponent, inf or nan. Nothing is taken where something else stands.
  std::optional<double> real();
  /// Any decimal number.
  double number();
  /// What support/text.h's quoted() writes.
  std::string string();
  DType dtype();
  Sym sym();
  /// Sizes with commas between them, up to `close`.
  Syms syms(std::string_view close);

  /// A place to come back to, so that a fault of a whole statement is reported where it begins.
  std::string_view place() const { return rest_; }
  void go_to(std::string_view place) { rest_ = place; }

 private:
  void skip_blanks();
  bool begins_comment() const;

  std::string_view all_, rest_;
};

}  // namespace bolt

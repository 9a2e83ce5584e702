// tests/support/text_reader_test.cpp
// The lexer of all text forms.
#include "support/text_reader.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/text.h"

namespace bolt {
namespace {

TEST(TextReader, WordsEndWhereTheyEnd) {
  TextReader in("inout in %b12 0..7");
  EXPECT_FALSE(in.accept("in"));
  EXPECT_TRUE(in.accept("inout"));
  EXPECT_TRUE(in.accept("in"));
  EXPECT_EQ(in.number_after("%b"), 12);
  EXPECT_EQ(in.integer(), 0);
  EXPECT_TRUE(in.accept(".."));
  EXPECT_EQ(in.integer(), 7);
  EXPECT_TRUE(in.at_end());
}

TEST(TextReader, ACommentStandsBehindABlank) {
  TextReader in("; a line\nb0[d1; %2]  ; and here\n  ;to the end");
  EXPECT_EQ(in.name(), "b0");
  EXPECT_TRUE(in.accept("["));
  EXPECT_EQ(in.sym(), Sym::symbol("d1"));
  EXPECT_TRUE(in.accept(";"));
  EXPECT_EQ(in.number_after("%"), 2);
  EXPECT_TRUE(in.accept("]"));
  EXPECT_TRUE(in.at_end());
}

TEST(TextReader, Numbers) {
  TextReader in("12 -0 1e-05 -inf nan 0.1 info -9223372036854775808");
  EXPECT_FALSE(in.real());
  EXPECT_EQ(in.number(), 12);
  EXPECT_TRUE(std::signbit(in.number()));
  EXPECT_EQ(in.real(), 1e-05);
  EXPECT_EQ(in.number(), -INFINITY);
  EXPECT_TRUE(std::isnan(*in.real()));
  EXPECT_EQ(in.number(), 0.1);
  EXPECT_FALSE(in.real());  // a name that begins as a number does
  EXPECT_EQ(in.word(), "info");
  EXPECT_EQ(in.integer(), INT64_MIN);
}

TEST(TextReader, StringsAreWhatWasQuoted) {
  const std::string text = "a \"quoted\" \\ word;\n\x01 and more";
  const std::string written = bolt::quoted(text);
  TextReader in(written);
  EXPECT_EQ(in.string(), text);
  EXPECT_TRUE(in.at_end());
}

std::string fault(std::string_view text, void (*read)(TextReader&)) {
  TextReader in(text);
  try {
    read(in);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::User ? e.what() : "another kind of error";
  }
  return "no fault";
}

TEST(TextReader, FaultsNameTheLineAndWhatStandsThere) {
  EXPECT_EQ(fault("a\n\n  b c", [](TextReader& in) { in.name(), in.expect("d"); }),
            "line 3: expected 'd' at 'b c'");
  EXPECT_EQ(fault("f33[2]", [](TextReader& in) { in.dtype(); }), "line 1: 'f33' is no element type at '[2]'");
  EXPECT_EQ(fault("\"open", [](TextReader& in) { in.string(); }), "line 1: a string without end");
  EXPECT_EQ(fault("\n1//0",
                  [](TextReader& in) {
                    try {
                      in.sym();
                    } catch (const Error& e) {
                      in.rethrow(e);
                    }
                  }),
            "line 2: division by zero in a size");
}

}  // namespace
}  // namespace bolt

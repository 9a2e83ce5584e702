// tests/support/reason_test.cpp
// A reason's text and hint are made of its row and of what it names.

#include "support/reason.h"

#include <gtest/gtest.h>

namespace bolt {
namespace {

TEST(Reason, FillsThePlacesOfItsText) {
  EXPECT_EQ(Reason(Why::lock_used).text(), "a lock is used");
  EXPECT_EQ(Reason(Why::calls, "time.time").text(), "calls time.time");
  EXPECT_EQ(Reason(Why::disabled, "f", ": of its own").text(), "calls f, which is disabled: of its own");
  EXPECT_EQ(Reason(Why::attribute_read, "{}", "C").text(), "attribute '{}' of a C from outside is read");
  EXPECT_STREQ(Reason(Why::attribute_read, "a", "C").id(), "attribute_read");
}

TEST(Reason, HasTheHintOfItsRowOrOfWhatItNames) {
  EXPECT_STREQ(Reason(Why::lock_used).hint(), "");
  EXPECT_STREQ(Reason(Why::calls, "time.time").hint(), "measure around the compiled call");
  EXPECT_STREQ(Reason(Why::calls, "my.time.time").hint(), "");
  const std::string of_row = Reason(Why::calls_unknown, "mine.go").hint();
  EXPECT_NE(of_row.find("allow_in_graph"), std::string::npos);
  EXPECT_NE(Reason(Why::calls_unknown, "numpy.ufunc.__call__").hint(), of_row);
  // What the user calls his function says nothing about an end that he asked for.
  EXPECT_STREQ(Reason(Why::disabled, "time.time", "").hint(), Reason(Why::graph_break, "").hint());
}

TEST(Reason, SaysWhereItWasFound) {
  const Reason inner = Reason(Why::lock_used).within_instruction();
  EXPECT_EQ(inner.text(), "a lock is used, in Python that runs within this instruction");
  EXPECT_STRNE(inner.hint(), "");
  const Reason left =
      Reason(Why::not_described, "C", "contains itself").where_it_ends({Why::calls, "time.time"});
  EXPECT_EQ(left.text(), "a C contains itself where the region ends: calls time.time");
  EXPECT_STREQ(left.hint(), "measure around the compiled call");
  // An end that follows from another one says what began it.
  const Reason next = Reason(Why::not_described, "D", "contains itself").where_it_ends(left);
  EXPECT_EQ(next.text(), "a D contains itself where the region ends: calls time.time");
}

}  // namespace
}  // namespace bolt

#include "support/symbols.h"

#include <gtest/gtest.h>

namespace bolt {
namespace {

TEST(Symbols, AStepThereAndBack) {
  for (const bool is_float : {false, true}) {
    const Sym s = number_symbol(12, is_float);
    EXPECT_EQ(number_step(*s.node()), 12);
    EXPECT_EQ(is_float_symbol(*s.node()), is_float);
  }
}

TEST(Symbols, SizesAreNoNumbers) {
  for (const char* name : {"s0", "t12_0", "d3", "g7"}) {
    const Sym s = Sym::symbol(name);
    EXPECT_EQ(number_step(*s.node()), -1);
    EXPECT_FALSE(is_float_symbol(*s.node()));
  }
  const Sym sum = number_symbol(3, false) + Sym(1);
  EXPECT_EQ(number_step(*sum.node()), -1);
}

TEST(Symbols, ASizeNamesItsTensor) {
  const Sym size = tape_symbol(12, 1), found = data_size(7, 0);
  EXPECT_EQ(tensor_of_size(*size.node()), 12);
  EXPECT_EQ(tensor_of_size(*found.node()), -1);
  EXPECT_EQ(tensor_of_data_size(*found.node()), 7);
  EXPECT_EQ(tensor_of_data_size(*size.node()), -1);
  EXPECT_TRUE(holds_data_size(found + size));
  EXPECT_FALSE(holds_data_size(size + Sym(1)));
}

TEST(Symbols, IntsAreBoundedFloatsAreNot) {
  EXPECT_EQ(upper_bound(number_symbol(0, false)), kNumberLimit);
  EXPECT_EQ(upper_bound(number_symbol(0, true)), 0);
}

}  // namespace
}  // namespace bolt

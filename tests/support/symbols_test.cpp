// tests/support/symbols_test.cpp
// One table of symbols for sizes and numbers.
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

TEST(Symbols, NamesAreReadBackAsWhatTheySay) {
  for (Sym s : {tape_symbol(12, 33), number_symbol(3, false), number_symbol(0, true), data_size(7, 1)}) {
    const std::string text = s.str();
    std::string_view left = text;
    EXPECT_EQ(parse_sym(left), s) << text;
  }
  for (const char* name :
       {"s0", "d3", "t12", "n", "n3x", "nu", "u7_", "u_1", "t-1_0", "f3_0", "n99999999999"}) {
    const Sym s = symbol_named(name);
    EXPECT_EQ(s.node()->what.kind, SymbolKind::named) << name;
    EXPECT_EQ(s, Sym::symbol(name));
  }
}

TEST(Symbols, OneNameMayHaveTwoKinds) {
  EXPECT_NE(data_number(5), Sym::symbol("d5"));
  EXPECT_TRUE(holds_data_number(data_number(5) + Sym(1)));
  EXPECT_FALSE(holds_data_number(Sym::symbol("d5") + Sym(1)));
  EXPECT_NE(data_number(5) - Sym::symbol("d5"), Sym(0));
}

TEST(Symbols, PlacesKeepKindsAndBounds) {
  const Syms symbols = {Sym::symbol("s7"), data_size(9, 2), number_symbol(4, false), Sym::symbol("s1", 16)};
  const Syms places = by_place(symbols);
  EXPECT_EQ(places,
            (Syms{Sym::symbol("s0"), data_size(1, 0), number_symbol(2, false), Sym::symbol("s3", 16)}));
  EXPECT_EQ(by_place(places), places);
  const Sym size = symbols[0] * Sym(3) + floordiv(symbols[1], 2) + Sym::symbol("d0");
  EXPECT_EQ(renamed(renamed(size, symbols, places), places, symbols), size);
  EXPECT_EQ(renamed(size, symbols, places), places[0] * Sym(3) + floordiv(places[1], 2) + Sym::symbol("d0"));
}

TEST(Symbols, ATableGivesValues) {
  const Sym s0 = Sym::symbol("s0"), n3 = number_symbol(3, false);
  const SymbolTable table = {SymbolRow::of_input(s0, 1, 0, 8, false), SymbolRow::of_number(n3, 5, true)};
  EXPECT_EQ(table[1].dim, 3);  // its step
  const std::vector<int64_t> values = {10, 2};
  const Evaluate value{table, values};
  EXPECT_EQ(value(s0 * n3 + Sym(1)), 21);
  EXPECT_EQ(value(Syms{7, n3}), (std::vector<int64_t>{7, 2}));
  EXPECT_EQ(evaluate(s0 - n3, table, [&](size_t i) { return table[i].hint; }), 3);
  EXPECT_THROW(value(Sym::symbol("s9")), Error);
  EXPECT_EQ(evaluate(
                Sym::symbol("s9") + s0, table, [](size_t) { return 4; }, [](const SymNode&) { return -1; }),
            3);
}

TEST(Symbols, IntsAreBoundedFloatsAreNot) {
  EXPECT_EQ(upper_bound(number_symbol(0, false)), kNumberLimit);
  EXPECT_EQ(upper_bound(number_symbol(0, true)), 0);
}

}  // namespace
}  // namespace bolt

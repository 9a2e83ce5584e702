// tests/support/sym_test.cpp
// Canonical form, division rules, text form; random expressions against plain
// evaluation.
#include "support/sym.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "support/error.h"

namespace bolt {
namespace {

Sym s0() { return Sym::symbol("s0"); }
Sym s1() { return Sym::symbol("s1"); }
Sym d(int i, int64_t upper = 0) { return Sym::symbol("d" + std::to_string(i), upper); }

Sym read(std::string_view text) {
  Sym r = parse_sym(text);
  EXPECT_EQ(text, "");
  return r;
}

TEST(Sym, Constants) {
  EXPECT_EQ(Sym(3) + Sym(4), Sym(7));
  EXPECT_EQ(Sym(3) * Sym(-4), Sym(-12));
  EXPECT_EQ(floordiv(-7, 2), Sym(-4));
  EXPECT_EQ(mod(-7, 2), Sym(1));
  EXPECT_EQ(ceildiv(9, 4), Sym(3));
  EXPECT_EQ(min(3, 5), Sym(3));
  EXPECT_EQ(max(3, 5), Sym(5));
  EXPECT_THROW(floordiv(1, 0), Error);
  EXPECT_THROW(s0().value(), Error);
}

TEST(Sym, EqualExpressionsAreOneNode) {
  EXPECT_EQ(s0() + s1(), s1() + s0());
  EXPECT_EQ(s0() + s0(), s0() * Sym(2));
  EXPECT_EQ(s0() - s0(), Sym(0));
  EXPECT_EQ((s0() + Sym(1)) * s1(), s0() * s1() + s1());
  EXPECT_EQ(s0() * s1() * Sym(3), Sym(3) * s1() * s0());
  EXPECT_NE(s0(), s1());
  EXPECT_EQ(Sym::symbol("d0", 8), Sym::symbol("d0", 8));
  EXPECT_NE(Sym::symbol("d0", 8), Sym::symbol("d0", 16));
}

TEST(Sym, Division) {
  EXPECT_EQ(floordiv(s0() * Sym(8), 8), s0());
  EXPECT_EQ(mod(s0() * Sym(8), 8), Sym(0));
  EXPECT_EQ(floordiv(d(0) * Sym(8) + d(1, 8), 8), d(0));
  EXPECT_EQ(mod(d(0) * Sym(8) + d(1, 8), 8), d(1, 8));
  EXPECT_EQ(floordiv(d(0) * Sym(8) + d(1, 8), 16), floordiv(d(0), 2));
  EXPECT_EQ(floordiv(floordiv(d(0), 3), 4), floordiv(d(0), 12));
  EXPECT_EQ(mod(mod(d(0), 12), 4), mod(d(0), 4));
  EXPECT_EQ(floordiv(s0() * s1(), s0()), s1());
  EXPECT_EQ(mod(s0() * s1(), s1()), Sym(0));
  EXPECT_EQ(floordiv(s0() * s1() * Sym(6), s1() * Sym(3)), s0() * Sym(2));
  EXPECT_EQ(floordiv(s0(), s0()), Sym(1));
}

TEST(Sym, ReshapeAndBack) {
  Sym i = d(0);
  EXPECT_EQ(floordiv(i, 4) * Sym(4) + mod(i, 4), i);
  EXPECT_EQ(floordiv(i, 12) * Sym(12) + mod(floordiv(i, 4), 3) * Sym(4) + mod(i, 4), i);
  Sym j = d(0, 96);
  EXPECT_EQ(floordiv(j, 12) * Sym(12) + mod(floordiv(j, 4), 3) * Sym(4) + mod(j, 4), j);
}

TEST(Sym, RoundedToAMultiple) {
  const Sym s = s0(), up = floordiv(s + Sym(3), 4) * Sym(4), down = floordiv(s, 4) * Sym(4);
  EXPECT_EQ(s + mod(Sym(0) - s, 4), up);
  EXPECT_EQ(s + mod(Sym(4) - mod(s, 4), 4), up);
  EXPECT_EQ(Sym(0) - floordiv(Sym(0) - s, 4) * Sym(4), up);
  EXPECT_EQ(s - mod(s, 4), down);
  EXPECT_EQ(s * s1() + s1() * mod(Sym(0) - s, 4), up * s1());
  EXPECT_EQ(mod(s * Sym(3) + mod(s * Sym(-3), 4), 4), Sym(0));
  EXPECT_EQ(floordiv(Sym(7) - d(0, 8), 4), Sym(1) - floordiv(d(0, 8), 4));
}

TEST(Sym, Bounds) {
  EXPECT_EQ(upper_bound(d(0, 8)), 8);
  EXPECT_EQ(upper_bound(d(0, 8) * Sym(4) + d(1, 4)), 32);
  EXPECT_EQ(upper_bound(s0()), 0);
  EXPECT_EQ(upper_bound(mod(s0(), 8)), 8);
  EXPECT_EQ(lower_bound(d(0, 8) - Sym(3)), -3);
  EXPECT_EQ(upper_bound(Sym(7) - d(0, 8)), 8);
  EXPECT_EQ(min(d(0, 8), 8), d(0, 8));
  EXPECT_EQ(max(s0(), 0), s0());
  EXPECT_EQ(max(s0() + s1(), s0()), s0() + s1());
  EXPECT_EQ(floordiv(d(0, 8) - Sym(1), 8), floordiv(d(0, 8) + Sym(7), 8) - Sym(1));  // may be -1: not folded
}

TEST(Sym, Divisible) {
  EXPECT_TRUE(divisible(s0() * Sym(12), 4));
  EXPECT_TRUE(divisible(s0() * Sym(8) + Sym(16), 8));
  EXPECT_FALSE(divisible(s0() * Sym(8) + Sym(4), 8));
  EXPECT_FALSE(divisible(s0(), 2));
  EXPECT_TRUE(divisible(s0(), 1));
}

TEST(Sym, SumTerms) {
  int64_t k = 0;
  auto terms = sum_terms(d(1) + d(0) * Sym(512) + Sym(5), &k);
  ASSERT_EQ(terms.size(), 2u);
  EXPECT_EQ(k, 5);
  EXPECT_EQ(terms[0].coef, 512);
  EXPECT_EQ(terms[0].term, d(0));
  EXPECT_EQ(terms[1].coef, 1);
}

TEST(Sym, Text) {
  EXPECT_EQ((d(1) + d(0) * Sym(512)).str(), "512*d0 + d1");
  EXPECT_EQ((d(10) + d(2)).str(), "d2 + d10");
  EXPECT_EQ((s0() - s1() * Sym(2) - Sym(1)).str(), "s0 - 2*s1 - 1");
  EXPECT_EQ(floordiv(s0() + Sym(1), 2).str(), "(s0 + 1)//2");
  EXPECT_EQ((floordiv(s0(), 4) * Sym(4)).str(), "4*(s0//4)");
  EXPECT_EQ(min(s0(), s1() * Sym(2)).str(), "min(s0, 2*s1)");
  for (const char* text : {"512*d0 + d1", "(s0 + 1)//2", "4*(s0//4)", "min(s0, 2*s1)", "-s0", "s0*s1 - 3",
                           "-7", "(s1//3)*(s0%4) + max(s0, 3)", "s0//s1", "(s0*s1)%(s0 + 1)"})
    EXPECT_EQ(read(text).str(), text);
}

TEST(Sym, TextErrors) {
  for (const char* text : {"", "+", "3 +", "min(s0", "(s0", "s0//0", "99999999999999999999"}) {
    std::string_view view = text;
    EXPECT_THROW(parse_sym(view), Error) << text;
  }
  std::string_view rest = "s0 + 4, s1";
  EXPECT_EQ(parse_sym(rest), s0() + Sym(4));
  EXPECT_EQ(rest, ", s1");
}

TEST(Sym, Substitute) {
  Sym e = floordiv(s0() * s1() + Sym(3), 4);
  EXPECT_EQ(substitute(e, [](Sym s) { return s == s0() ? Sym(4) : s; }), s1());
  Syms symbols;
  collect_symbols(e, &symbols);
  EXPECT_EQ(symbols, (Syms{s0(), s1()}));
}

// An expression built twice: through Sym, and as a plain number.
struct Both {
  Sym sym;
  int64_t value;
};

class RandomExpressions {
 public:
  explicit RandomExpressions(unsigned seed) : random_(seed) {
    for (int i = 0; i < 4; ++i) {
      int64_t upper = i < 2 ? 0 : 1 + pick(12);
      Sym s = Sym::symbol("r" + std::to_string(i), upper);
      values_[s.node()->name] = upper ? pick(upper) : pick(20);
      leaves_.push_back({s, values_[s.node()->name]});
    }
  }
  int64_t pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  Both make(int depth) {
    if (depth == 0 || pick(6) == 0) {
      if (pick(3) == 0) {
        int64_t v = pick(14) - 3;
        return {Sym(v), v};
      }
      return leaves_[static_cast<size_t>(pick(4))];
    }
    Both a = make(depth - 1), b = make(depth - 1);
    int64_t c = 1 + pick(9);
    auto floor_div = [](int64_t x, int64_t y) { return x / y - (x % y != 0 && (x < 0) != (y < 0)); };
    switch (pick(8)) {
      case 0: return {a.sym * b.sym, a.value * b.value};
      case 1: return {a.sym - b.sym, a.value - b.value};
      case 2: return {a.sym * Sym(c), a.value * c};
      case 3: return {floordiv(a.sym, c), floor_div(a.value, c)};
      case 4: return {mod(a.sym, c), a.value - c * floor_div(a.value, c)};
      case 5: return {min(a.sym, b.sym), std::min(a.value, b.value)};
      case 6: return {max(a.sym, b.sym), std::max(a.value, b.value)};
      default: return {a.sym + b.sym, a.value + b.value};
    }
  }
  int64_t evaluate_again(Sym s) {
    return evaluate(s, [this](const SymNode& n) { return values_.at(n.name); });
  }

 private:
  std::mt19937 random_;
  std::map<std::string, int64_t> values_;
  std::vector<Both> leaves_;
};

TEST(Sym, RandomExpressionsKeepTheirValue) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    RandomExpressions random(seed);
    Both e = random.make(4);
    ASSERT_EQ(random.evaluate_again(e.sym), e.value) << "seed " << seed << ": " << e.sym.str();
    if (upper_bound(e.sym)) {
      ASSERT_LT(e.value, upper_bound(e.sym)) << "seed " << seed << ": " << e.sym.str();
    }
    ASSERT_GE(e.value, lower_bound(e.sym)) << "seed " << seed << ": " << e.sym.str();
    Sym back = read(e.sym.str());
    ASSERT_EQ(random.evaluate_again(back), e.value) << "seed " << seed << ": " << e.sym.str();
    ASSERT_EQ(substitute(e.sym, [&](Sym s) { return Sym(random.evaluate_again(s)); }), Sym(e.value))
        << "seed " << seed;
  }
}

TEST(Sym, RandomExpressionsRoundedAreMultiples) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    RandomExpressions random(seed);
    const Both e = random.make(2);
    const int64_t m = 2 + random.pick(8), rest = ((e.value % m) + m) % m;
    const Sym down = e.sym - mod(e.sym, m), up = e.sym + mod(Sym(0) - e.sym, m);
    ASSERT_EQ(random.evaluate_again(down), e.value - rest) << "seed " << seed << ": " << down.str();
    ASSERT_EQ(random.evaluate_again(up), e.value + (m - rest) % m) << "seed " << seed << ": " << up.str();
    for (Sym each : {down, up}) {
      ASSERT_EQ(mod(each, m), Sym(0)) << "seed " << seed << ": " << each.str() << " of " << e.sym.str();
      if (e.sym.str().find('%') != std::string::npos) continue;  // a sum of moduli may stay one
      ASSERT_EQ(floordiv(each, m) * Sym(m), each)
          << "seed " << seed << ": " << each.str() << " of " << e.sym.str();
    }
  }
}

TEST(Sym, ManyThreadsAgree) {
  Syms results(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); ++t)
    threads.emplace_back([&results, t] {
      Sym r = 0;
      for (int i = 0; i < 200; ++i) r += floordiv(Sym::symbol("t" + std::to_string(i % 20)), 1 + i % 7);
      results[t] = r;
    });
  for (auto& t : threads) t.join();
  for (Sym r : results) EXPECT_EQ(r, results[0]);
}

}  // namespace
}  // namespace bolt

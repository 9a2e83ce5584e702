// tests/support/knobs_test.cpp
// The table of environment variables, dumps' patterns, text tools.
#include "support/knobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "support/dump.h"
#include "support/error.h"
#include "support/text.h"

namespace bolt {
namespace {

/// Variables are put back behind each test: the run itself may have been given some.
class Environment : public ::testing::Test {
 protected:
  void set(const char* name, const char* value) {
    const char* before = getenv(name);
    before_.try_emplace(name, before ? std::optional<std::string>(before) : std::nullopt);
    setenv(name, value, 1);
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value)
        setenv(name.c_str(), value->c_str(), 1);
      else
        unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST_F(Environment, DefaultsAndValues) {
  set("TORCHBOLT_ISA", "");  // as good as not set
  EXPECT_EQ(knob("TORCHBOLT_ISA"), "native");
  EXPECT_EQ(knob_int("TORCHBOLT_FUEL"), -1);
  set("TORCHBOLT_ISA", "avx2");
  set("TORCHBOLT_FUEL", "12");
  EXPECT_EQ(knob("TORCHBOLT_ISA"), "avx2");
  EXPECT_EQ(knob_int("TORCHBOLT_FUEL"), 12);
  EXPECT_EQ(knobs_for_cache_key(), "TORCHBOLT_ISA=avx2;TORCHBOLT_FUEL=12;");
}

TEST_F(Environment, Faults) {
  EXPECT_THROW(knob("TORCHBOLT_NO_SUCH"), Error);
  set("TORCHBOLT_FUEL", "many");
  EXPECT_THROW(knob_int("TORCHBOLT_FUEL"), Error);
  set("TORCHBOLT_STRICT", "perhaps");
  EXPECT_THROW(knob_bool("TORCHBOLT_STRICT"), Error);
  set("TORCHBOLT_STRICT", "On");
  EXPECT_TRUE(knob_bool("TORCHBOLT_STRICT"));
}

TEST_F(Environment, Lists) {
  set("TORCHBOLT_LOGS", "breaks, guards");
  EXPECT_TRUE(knob_has("TORCHBOLT_LOGS", "guards"));
  EXPECT_FALSE(knob_has("TORCHBOLT_LOGS", "cache"));
}

TEST_F(Environment, DumpPatterns) {
  EXPECT_FALSE(dump_wanted("graph"));
  set("TORCHBOLT_DUMP", "graph:decompose,kernel@softmax_0");
  EXPECT_TRUE(dump_wanted("graph", "decompose", "forward"));
  EXPECT_FALSE(dump_wanted("graph", "cse", "forward"));
  EXPECT_TRUE(dump_wanted("kernel", "", "softmax_0"));
  EXPECT_FALSE(dump_wanted("kernel", "", "softmax_1"));
  set("TORCHBOLT_DUMP", "all");
  EXPECT_TRUE(dump_wanted("plan", "x", "y"));
}

TEST(Text, Tools) {
  EXPECT_EQ(trim("  a b\n"), "a b");
  EXPECT_EQ(split("a,,b", ',').size(), 3u);
  EXPECT_TRUE(split("", ',').empty());
  EXPECT_EQ(quoted("a\"b\n"), "\"a\\\"b\\n\"");
  EXPECT_EQ(number(1), "1.0");
  EXPECT_EQ(number(1e-5), "1e-05");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(number(std::nan("")), "nan");
  EXPECT_EQ(nearest("defualt", {"default", "max-autotune"}), "default");
  EXPECT_EQ(nearest("zzzzzz", {"default", "max-autotune"}), "");
}

}  // namespace
}  // namespace bolt

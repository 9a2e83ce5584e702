// tests/codegen/batch_test.cpp
// Batches that are compiled while others are: each unit once, and nobody waits in vain.
#include "codegen/common/batch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/parallel.h"

namespace bolt::codegen {
namespace {

struct Text final : MachineCode {
  explicit Text(std::string text) : text(std::move(text)) {}
  void* address(const std::string& name) const override {
    EXPECT_NE(text.find(name), text.npos);
    return const_cast<char*>(text.data());
  }
  size_t bytes() const override { return text.size(); }
  const std::string text;
};

class BatchTest : public testing::Test {
 protected:
  std::vector<BatchUnit> units(const std::string& keys) const {
    std::vector<BatchUnit> all;
    for (char key : keys) all.push_back({std::string(1, key), nullptr, nullptr});
    return all;
  }
  Compiler compiler(bool fails = false) {
    return {target,
            [this, fails](const std::vector<NamedUnit>& units) {
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
              if (fails) throw std::runtime_error("no code");
              compiled += static_cast<int>(units.size());
              std::string text;
              for (const NamedUnit& u : units) text += u.name + " ";
              return text;
            },
            [](const std::string& object) { return std::make_shared<Text>(object); }};
  }
  static void expect_code(const Batch& batch) {
    for (const BatchUnit& u : batch.units()) EXPECT_TRUE(u.code && u.function);
  }

  // Of this test alone, on disk too.
  const std::string target = "batch_test " + std::to_string(getpid()) + " " +
                             std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
  std::atomic<int> compiled = 0;
};

TEST_F(BatchTest, WhatAnotherIsAboutToCompileIsNotCompiledAgain) {
  Batch first(units("abcd"), compiler()), second(units("cdef"), compiler());
  auto under_way = started([&] { return first.compile(); });
  EXPECT_FALSE(second.compile());
  EXPECT_FALSE(under_way.get());
  EXPECT_EQ(compiled, 6);
  expect_code(first);
  expect_code(second);
  Batch third(units("af"), compiler());
  EXPECT_TRUE(third.compile());
  EXPECT_EQ(third.units()[0].code, first.units()[0].code);
  EXPECT_EQ(compiled, 6);
}

TEST_F(BatchTest, AllOfItAwaited) {
  Batch first(units("ab"), compiler()), second(units("ba"), compiler());
  auto under_way = started([&] { return first.compile(); });
  EXPECT_TRUE(second.compile());
  under_way.get();
  EXPECT_EQ(second.units()[1].function, first.units()[0].function);
  EXPECT_EQ(compiled, 2);
}

TEST_F(BatchTest, WhatAnotherFailedToCompileIsCompiled) {
  Batch first(units("ab"), compiler(true)), second(units("bc"), compiler());
  auto under_way = started([&] { return first.compile(); });
  EXPECT_FALSE(second.compile());
  EXPECT_THROW(under_way.get(), std::runtime_error);
  expect_code(second);
  EXPECT_EQ(compiled, 2);
}

TEST_F(BatchTest, WhatAnotherLeftIsCompiled) {
  std::optional<Batch> first(std::in_place, units("ab"), compiler());
  Batch second(units("bc"), compiler());
  first.reset();
  EXPECT_FALSE(second.compile());
  expect_code(second);
}

TEST_F(BatchTest, AForkedChildWaitsForNobody) {
  Batch first(units("ab"), compiler());
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    Batch second(units("bc"), compiler());
    second.compile();
    _exit(second.units()[0].code ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(BatchTest, LongOnesAreCompiledBesideEachOther) {
  setenv("TORCHBOLT_THREADS", "2", 1);
  std::vector<BatchUnit> all;
  for (const int length : {900, 10, 800, 20, 30, 40}) {
    const std::string letter(1, static_cast<char>('a' + all.size()));
    all.push_back({letter + std::string(static_cast<size_t>(length), '.'), nullptr, nullptr});
  }
  std::mutex mutex;
  std::vector<std::set<size_t>> shares;
  auto noting = compiler();
  noting.object = [&, object = noting.object](const std::vector<NamedUnit>& units) {
    const std::lock_guard lock(mutex);
    auto& share = shares.emplace_back();
    for (const NamedUnit& u : units) share.insert(u.unit);
    return object(units);
  };
  std::optional<Batch> batch(std::in_place, all, noting);
  batch->compile();
  unsetenv("TORCHBOLT_THREADS");
  std::ranges::sort(shares);
  EXPECT_EQ(shares, (std::vector<std::set<size_t>>{{0}, {1, 2, 3, 4, 5}}));
  expect_code(*batch);
  batch.reset();
  Batch from_disk(all, compiler());
  EXPECT_TRUE(from_disk.compile());
  expect_code(from_disk);
}

TEST_F(BatchTest, AsManyThreadsAsThereMayBe) {
  setenv("TORCHBOLT_THREADS", "1", 1);
  std::atomic<int> at_once = 0, most = 0;
  auto counting = compiler();
  counting.object = [&, object = counting.object](const std::vector<NamedUnit>& units) {
    most = std::max<int>(most, ++at_once);
    std::string text = object(units);
    --at_once;
    return text;
  };
  Batch first(units("ab"), counting), second(units("cd"), counting);
  auto under_way = started([&] { return first.compile(); });
  second.compile();
  under_way.get();
  unsetenv("TORCHBOLT_THREADS");
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace bolt::codegen

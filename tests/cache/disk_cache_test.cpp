// tests/cache/disk_cache_test.cpp
// What is written is read back by any process; what is damaged counts as absent and is replaced; the limit
// holds.

#include "cache/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cache/folder.h"

namespace bolt::cache {
namespace {

namespace fs = std::filesystem;
using testing::contents, testing::Folder, testing::overwrite;

TEST(DiskCache, GivesBackWhatWasWritten) {
  Folder folder;
  const DiskCache cache(folder.path(), 1 << 20);
  EXPECT_FALSE(cache.read("key"));
  cache.write("key", "bytes");
  EXPECT_EQ(DiskCache(folder.path(), 1 << 20).read("key"), "bytes");
  EXPECT_FALSE(cache.read("other key"));
}

TEST(DiskCache, IgnoresDamagedFilesAndWritesThemAgain) {
  Folder folder;
  const DiskCache cache(folder.path(), 1 << 20);
  int warnings = 0;
  on_warning([&](const std::string&) { ++warnings; });
  cache.write("key", "some bytes that matter");
  const std::string file = cache.path("key"), good = contents(file);
  std::string flipped = good;
  flipped.back() ^= 1;
  for (const std::string& bad :
       {std::string(), good.substr(0, 10), good.substr(0, good.size() - 1), flipped, good + "x",
        std::string("#!/bin/sh\nnot ours at all, and long enough for a head\n")}) {
    overwrite(file, bad);
    EXPECT_FALSE(cache.read("key"));
  }
  fs::copy_file(cache.path("key"), cache.path("third"));
  overwrite(cache.path("third"), good);  // whole, but of another key
  EXPECT_FALSE(cache.read("third"));
  cache.write("key", "some bytes that matter");
  EXPECT_EQ(cache.read("key"), "some bytes that matter");
  EXPECT_EQ(warnings, 1);
  on_warning(nullptr);
}

TEST(DiskCache, KeepsTheMostRecentlyUsedUnderItsLimit) {
  Folder folder;
  const DiskCache cache(folder.path(), 10000);
  for (int i = 0; i < 8; ++i) {
    cache.write("key" + std::to_string(i), std::string(1100, 'x'));
    // File times must differ for an order to exist.
    fs::last_write_time(cache.path("key" + std::to_string(i)),
                        fs::file_time_type::clock::now() - std::chrono::hours(8 - i));
  }
  EXPECT_TRUE(cache.read("key0"));  // now the most recent
  cache.write("one more", std::string(2000, 'y'));
  EXPECT_TRUE(cache.read("key0"));
  EXPECT_TRUE(cache.read("one more"));
  EXPECT_FALSE(cache.read("key1"));
  int64_t total = 0;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    total += static_cast<int64_t>(entry.file_size());
  EXPECT_LE(total, 10000);
}

TEST(DiskCache, StaysNearItsLimitThoughItLooksRarely) {
  Folder folder;
  constexpr int64_t kLimit = 1 << 20;
  const DiskCache cache(folder.path(), kLimit);
  int64_t most = 0, total = 0;
  for (int i = 0; i < 6000; ++i) {
    cache.write("key" + std::to_string(i), std::string(1000, 'x'));
    if (i % 500 != 499) continue;
    total = 0;
    for (const auto& entry : fs::directory_iterator(folder.path()))
      total += static_cast<int64_t>(entry.file_size());
    most = std::max(most, total);
  }
  EXPECT_LE(most, kLimit + kLimit / 4);
  EXPECT_GE(total, kLimit / 2);
}

TEST(DiskCache, ManyProcessesWriteAtOnce) {
  Folder folder;
  std::vector<pid_t> children;
  for (int c = 0; c < 6; ++c) {
    const pid_t child = fork();
    if (child == 0) {
      const DiskCache cache(folder.path(), 200000);
      bool good = true;
      for (int i = 0; i < 200; ++i) {
        const std::string key = "key" + std::to_string(i % 17), value(500 + static_cast<size_t>(i % 17), 'v');
        if (auto found = cache.read(key)) good = good && *found == value;
        cache.write(key, value);
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().extension(), ".bolt");
}

TEST(DiskCache, TrimsOnlyItsOwnFiles) {
  Folder folder;
  const std::string letter = folder.path() + "/letter.txt", key(32, 'a');
  overwrite(letter, "the user's, and the oldest");
  overwrite(folder.path() + "/" + key + ".bolt.123.0.tmp", std::string(900, 'x'));  // a dead process's
  for (const std::string& file : {letter, folder.path() + "/" + key + ".bolt.123.0.tmp"})
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(100));
  const DiskCache cache(folder.path(), 1000);
  for (int i = 0; i < 20; ++i) cache.write("key" + std::to_string(i), std::string(500, 'x'));
  EXPECT_TRUE(fs::exists(letter));
  EXPECT_FALSE(fs::exists(folder.path() + "/" + key + ".bolt.123.0.tmp"));
}

TEST(DiskCache, AFullDiskLeavesNothingHalfWritten) {
  Folder folder;
  const pid_t child = fork();
  if (child == 0) {
    const DiskCache cache(folder.path(), 1 << 20);
    cache.write("small", "bytes");
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit little{4096, 4096};  // as a full disk does: a part is written, and then no more
    setrlimit(RLIMIT_FSIZE, &little);
    std::vector<std::string> warnings;
    on_warning([&](const std::string& text) { warnings.push_back(text); });
    for (int i = 0; i < 2; ++i) cache.write("large", std::string(10000, 'x'));
    const bool told = warnings.size() == 1 && warnings[0].find("File too large") != std::string::npos;
    _exit(told && cache.read("small") == "bytes" && !cache.read("large") ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(DiskCache, WithoutAFolderThereIsNoneAndItsUserIsTold) {
  Folder folder;
  overwrite(folder.path() + "/file", "no folder");
  for (const std::string& path : {std::string("/proc/no/such/folder"), folder.path() + "/file"}) {
    std::vector<std::string> warnings;
    on_warning([&](const std::string& text) { warnings.push_back(text); });
    const DiskCache cache(path, 1 << 20);
    cache.write("key", "bytes");
    EXPECT_FALSE(cache.read("key"));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("cannot be opened or made ("), std::string::npos) << warnings[0];
    EXPECT_NE(warnings[0].find("TORCHBOLT_CACHE_DIR"), std::string::npos) << warnings[0];
  }
  on_warning(nullptr);
}

}  // namespace
}  // namespace bolt::cache

// tests/cache/own_folder_test.cpp
// Nobody but the user and root can give the cache something to run: planted files, links, folders made first,
// folders that others may write, pipes, and what is exchanged between check and use.
//
// Root may give files away and become somebody else, so as root every attack is made for real; else those
// that need a second user say that they were left out.

#include "cache/own_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cache/disk_cache.h"
#include "tests/cache/folder.h"

namespace bolt::cache {
namespace {

namespace fs = std::filesystem;
using testing::contents, testing::Folder, testing::overwrite;

constexpr int64_t kLimit = 1 << 20;
constexpr uid_t kMallory = 54321, kVictim = 54322;

#define BOLT_NEEDS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "only root can play two users"

class OwnFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    on_warning([this](const std::string& text) { warnings.push_back(text); });
  }
  void TearDown() override { on_warning(nullptr); }

  std::string below(const std::string& name) const { return folder.path() + "/" + name; }
  /// Mallory's code under the victim's key: as good as real, since anybody can compute the checksum.
  std::string planted(const std::string& key) const {
    const Folder elsewhere;
    const DiskCache hers(elsewhere.path(), kLimit);
    hers.write(key, "planted");
    return contents(hers.path(key));
  }
  /// Neither read nor written, and one warning that holds `words`, whatever is asked.
  void expect_refused(const std::string& path, const std::string& words) {
    const DiskCache cache(path, kLimit);
    EXPECT_FALSE(cache.read("key"));
    cache.write("other", "bytes");
    EXPECT_FALSE(cache.read("other"));
    expect_one_warning(words);
  }
  void expect_one_warning(const std::string& words) {
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find(words), std::string::npos) << warnings[0];
    warnings.clear();
  }
  /// The file of "key" counts as absent, once with a warning, and is replaced by the next write.
  void expect_ignored(const DiskCache& cache, const std::string& words) {
    EXPECT_FALSE(cache.read("key"));
    EXPECT_FALSE(cache.read("key"));
    expect_one_warning(words);
    cache.write("key", "anew");
    EXPECT_EQ(cache.read("key"), "anew");
    EXPECT_TRUE(warnings.empty());
  }

  Folder folder;
  std::vector<std::string> warnings;
};

mode_t mode_of(const std::string& path) {
  struct stat info{};
  lstat(path.c_str(), &info);
  return info.st_mode & 07777;
}

/// What `work` says when another user does it.
bool as_user(uid_t user, const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(setgid(user) == 0 && setuid(user) == 0 && work() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST_F(OwnFolderTest, IsMadeForTheUserAlone) {
  const DiskCache cache(below("a/b/c"), kLimit);
  cache.write("key", "bytes");
  for (const char* made : {"a", "a/b", "a/b/c"}) EXPECT_EQ(mode_of(below(made)), 0700u) << made;
  EXPECT_EQ(mode_of(cache.path("key")), 0600u);
  EXPECT_EQ(cache.read("key"), "bytes");
  EXPECT_TRUE(warnings.empty());
}

TEST_F(OwnFolderTest, IsRefusedIfOthersMayWriteIt) {
  const struct {
    const char* name;
    mode_t mode;
    const char* words;
  } rows[] = {{"group", 0770, "may be written by its group"},
              {"everybody", 0707, "may be written by everybody"},
              {"sticky", 01777, "may be written by everybody"}};
  for (const auto& row : rows) {
    const std::string path = below(row.name);
    const std::string file = DiskCache(path, kLimit).path("key");
    overwrite(file, planted("key"));
    chmod(path.c_str(), row.mode);
    expect_refused(path, row.words);
    EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 1) << row.name;
  }
}

TEST_F(OwnFolderTest, IsRefusedIfOthersMayExchangeAFolderAbove) {
  fs::create_directories(below("shared/mine"));
  chmod(below("shared").c_str(), 0777);
  expect_refused(below("shared/mine"), below("shared") + " may be written by everybody");
  expect_refused(below("shared/none yet"), below("shared") + " may be written by everybody");
  EXPECT_FALSE(fs::exists(below("shared/none yet")));
  chmod(below("shared").c_str(), 01777);  // as /tmp is
  const DiskCache cache(below("shared/mine/too"), kLimit);
  cache.write("key", "bytes");
  EXPECT_EQ(cache.read("key"), "bytes");
}

TEST_F(OwnFolderTest, IsRefusedIfSomebodyElseMadeIt) {
  BOLT_NEEDS_ROOT();
  chmod(folder.path().c_str(), 01777);
  fs::create_directories(below("hers/inner"));
  for (const char* made : {"hers", "hers/inner"}) {
    chmod(below(made).c_str(), 0755);
    ASSERT_EQ(chown(below(made).c_str(), kMallory, kMallory), 0);
  }
  overwrite(below("hers") + fs::path(DiskCache("", kLimit).path("key")).string(), planted("key"));
  expect_refused(below("hers"), "belongs to another user (number 54321)");
  ASSERT_EQ(chown(below("hers/inner").c_str(), 0, 0), 0);  // the user's own, in hers
  expect_refused(below("hers/inner"), below("hers") + " belongs to another user");
}

TEST_F(OwnFolderTest, FollowsOnlyLinksOfItsUserOnTheRoad) {
  fs::create_directories(below("real"));
  fs::create_directory_symlink(below("real"), below("link"));
  fs::create_directory_symlink("real", below("relative"));
  fs::create_directory_symlink(below("round"), below("round"));
  chmod(below("real").c_str(), 0700);
  for (const char* name : {"link", "relative", "link/../relative/./"}) {
    const DiskCache cache(below(name), kLimit);
    cache.write(name, "bytes");
    EXPECT_EQ(DiskCache(below("real"), kLimit).read(name), "bytes");
  }
  EXPECT_TRUE(warnings.empty());
  EXPECT_FALSE(DiskCache(below("round"), kLimit).read("key"));  // and comes to an end
  expect_one_warning("Too many levels of symbolic links");
  BOLT_NEEDS_ROOT();
  ASSERT_EQ(lchown(below("link").c_str(), kMallory, kMallory), 0);
  expect_refused(below("link"), below("link") + " belongs to another user");
}

TEST_F(OwnFolderTest, IgnoresPlantedFiles) {
  const DiskCache cache(below("cache"), kLimit);
  overwrite(cache.path("key"), planted("key"));
  chmod(cache.path("key").c_str(), 0666);
  expect_ignored(cache, "may be written by everybody");

  const DiskCache second(below("second"), kLimit);
  overwrite(second.path("key"), planted("key"));
  chmod(second.path("key").c_str(), 0660);
  expect_ignored(second, "may be written by its group");

  BOLT_NEEDS_ROOT();
  const DiskCache third(below("third"), kLimit);
  overwrite(third.path("key"), planted("key"));
  ASSERT_EQ(chown(third.path("key").c_str(), kMallory, kMallory), 0);
  chmod(third.path("key").c_str(), 0644);
  expect_ignored(third, "belongs to another user (number 54321)");
}

TEST_F(OwnFolderTest, IgnoresLinksToFiles) {
  overwrite(below("elsewhere"), planted("key"));
  chmod(below("elsewhere").c_str(), 0600);
  const DiskCache soft(below("soft"), kLimit);
  fs::create_symlink(below("elsewhere"), soft.path("key"));
  expect_ignored(soft, "is a link");
  const DiskCache hard(below("hard"), kLimit);
  fs::create_hard_link(below("elsewhere"), hard.path("key"));
  expect_ignored(hard, "has another name");
  EXPECT_EQ(contents(below("elsewhere")), planted("key"));  // was not written through the links
}

TEST_F(OwnFolderTest, IgnoresWhatIsNoFile) {
  const DiskCache pipes(below("pipes"), kLimit);
  mkfifo(pipes.path("key").c_str(), 0600);
  expect_ignored(pipes, "is no regular file");  // and does not wait for somebody to write into it
  const DiskCache folders(below("folders"), kLimit);
  fs::create_directory(folders.path("key"));
  EXPECT_FALSE(folders.read("key"));
  expect_one_warning("is no regular file");
  folders.write("key", "bytes");  // cannot take the name of a folder
  EXPECT_FALSE(folders.read("key"));
}

// Whoever exchanges the file between a check and the use of a name would be believed.
TEST_F(OwnFolderTest, NeverReadsWhatIsExchangedBetweenCheckAndUse) {
  const DiskCache cache(below("cache"), kLimit);
  cache.write("key", "good");
  const std::string bad = below("bad"), link = below("link"), file = cache.path("key");
  overwrite(bad, planted("key"));
  chmod(bad.c_str(), 0666);
  fs::create_symlink(bad, link);
  constexpr int kExchanges = 20000;
  std::atomic<bool> done{false};
  std::thread mallory([&] {
    auto exchange = [&](const std::string& other) {
      return renameat2(AT_FDCWD, other.c_str(), AT_FDCWD, file.c_str(), RENAME_EXCHANGE) == 0;
    };
    // The file system of a test's folder may not know how to exchange: then there is no race to lose.
    for (int i = 0; i < kExchanges; ++i)
      if (!exchange(bad) || !exchange(bad) || !exchange(link) || !exchange(link)) break;
    done = true;
  });
  std::set<std::string> seen;
  while (!done) seen.insert(cache.read("key").value_or("nothing"));
  mallory.join();
  EXPECT_FALSE(seen.count("planted"));
  EXPECT_EQ(cache.read("key"), "good");
}

TEST_F(OwnFolderTest, StaysInTheFolderThatWasOpened) {
  const DiskCache cache(below("cache"), kLimit);
  cache.write("key", "good");
  fs::rename(below("cache"), below("away"));
  fs::create_directory(below("cache"));
  chmod(below("cache").c_str(), 0777);
  overwrite(cache.path("key"), planted("key"));
  EXPECT_EQ(cache.read("key"), "good");
  cache.write("more", "bytes");
  EXPECT_FALSE(fs::exists(cache.path("more")));
  EXPECT_EQ(DiskCache(below("away"), kLimit).read("more"), "bytes");
}

TEST_F(OwnFolderTest, IsGivenUpWhenItsRightsChange) {
  const DiskCache cache(below("cache"), kLimit);
  cache.write("key", "good");
  chmod(below("cache").c_str(), 0777);
  EXPECT_FALSE(cache.read("key"));
  expect_one_warning("it may be written by everybody");
}

// As a program does that becomes a daemon: the number is then that of another folder.
TEST_F(OwnFolderTest, IsGivenUpWhenTheProgramClosedItsDescriptor) {
  const pid_t child = fork();
  if (child == 0) {
    fs::create_directories(below("other"));
    const int before = open("/", O_RDONLY | O_DIRECTORY);
    close(before);
    const DiskCache cache(below("cache"), kLimit);
    cache.write("key", "good");
    for (int fd = before; fd < before + 10; ++fd) close(fd);
    for (int fd = 0; fd < 10; ++fd)
      if (open(below("other").c_str(), O_RDONLY | O_DIRECTORY) < 0) _exit(2);
    const bool nothing = !cache.read("key");
    cache.write("more", "bytes");
    _exit(nothing && fs::is_empty(below("other")) ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(OwnFolderTest, OfRootIsReadByOthersAndNotWritten) {
  BOLT_NEEDS_ROOT();
  chmod(folder.path().c_str(), 0755);
  const DiskCache roots(below("cache"), kLimit);
  roots.write("key", "good");
  chmod(below("cache").c_str(), 0755);
  chmod(roots.path("key").c_str(), 0644);
  EXPECT_TRUE(as_user(kVictim, [&] {
    const DiskCache cache(below("cache"), kLimit);
    cache.write("more", "bytes");
    return cache.read("key") == "good" && !cache.read("more") && warnings.size() == 1 &&
           warnings[0].find("Permission denied") != std::string::npos;
  }));
}

TEST_F(OwnFolderTest, CannotBePreparedByAnotherUser) {
  BOLT_NEEDS_ROOT();
  chmod(folder.path().c_str(), 01777);
  const std::string bad = planted("key");
  ASSERT_TRUE(as_user(kMallory, [&] {
    const DiskCache hers(below("cache"), kLimit);
    overwrite(hers.path("key"), bad);
    chmod(hers.path("key").c_str(), 0644);
    return chmod(below("cache").c_str(), 0777) == 0 && hers.path("key").size() > 0;
  }));
  EXPECT_TRUE(as_user(kVictim, [&] {
    const DiskCache cache(below("cache"), kLimit);
    const bool nothing = !cache.read("key") && !cache.read("key");
    return nothing && warnings.size() == 1 && warnings[0].find("54321") != std::string::npos;
  }));
}

}  // namespace
}  // namespace bolt::cache

// tests/cache/remote_cache_test.cpp
// Digests are the standards'; a server gives back what was written, and what fails or is not signed is
// nothing but one warning. tests/api/test_remote_cache.py asks a real server.

#include "cache/remote_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cache/sha256.h"
#include "cache/warning.h"

namespace bolt::cache {
namespace {

using std::chrono::milliseconds;
constexpr const char* kSecret = "a secret of sixteen or more";

std::string hex_of(const std::string& bytes) {
  std::string text;
  for (unsigned char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", c);
    text += two;
  }
  return text;
}

TEST(Sha256, GivesTheStandardsDigests) {
  EXPECT_EQ(hex_of(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, SignsAsInRfc4231) {
  EXPECT_EQ(hex_of(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hex_of(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Redis, ReadsAddresses) {
  const RedisAddress whole = redis_address("redis://me:p@ss@host.example:7000/3");
  EXPECT_EQ(whole.host + "|" + whole.port + "|" + whole.user + "|" + whole.password + "|" + whole.database,
            "host.example|7000|me|p@ss|3");
  EXPECT_EQ(whole.shown(), "redis://host.example:7000");
  const RedisAddress six = redis_address("redis://[::1]");
  EXPECT_EQ(six.host + "|" + six.port, "::1|6379");
  for (const char* bad : {"rediss://host", "host:6379", "redis://", "redis://:6379", "redis://host:"})
    EXPECT_THROW(redis_address(bad), RedisError) << bad;
}

/// Warnings of one test.
class Remote : public ::testing::Test {
 protected:
  void SetUp() override {
    if (redis_client().empty()) GTEST_SKIP() << "built without hiredis";
  }
  Remote() {
    on_warning([this](const std::string& text) { warnings.push_back(text); });
  }
  ~Remote() override { on_warning(nullptr); }
  std::vector<std::string> warnings;
};

/// Listens, and gives each connection the same answer, whatever it asks: at once, or byte by byte and an `x`
/// for each wait after it. One that `resets` then lets go of the connection with what was sent to it unread.
class Server {
 public:
  explicit Server(std::string answer, milliseconds each = milliseconds(0), bool resets = false)
      : answer_(std::move(answer)), each_(each), resets_(resets) {
    listening_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    bind(listening_, reinterpret_cast<sockaddr*>(&at), size);
    getsockname(listening_, reinterpret_cast<sockaddr*>(&at), &size);
    listen(listening_, 4);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] {
      for (int fd; (fd = accept(listening_, nullptr, nullptr)) >= 0; kept_.push_back(fd)) {
        ++connections;
        if (each_.count()) {
          answer_slowly(fd);
        } else if (!answer_.empty() && send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0) {
          break;
        }
        if (resets_) reset(fd);
      }
    });
  }
  ~Server() {
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    for (int fd : kept_) close(fd);
    close(listening_);
  }
  std::string url() const { return "redis://secret:word@127.0.0.1:" + std::to_string(port_); }
  std::atomic<int> connections{0};

 private:
  void answer_slowly(int fd) {
    const std::string all = answer_ + std::string(20, 'x');
    for (size_t i = 0; i < all.size() && send(fd, &all[i], 1, MSG_NOSIGNAL) == 1; ++i)
      std::this_thread::sleep_for(each_);
  }
  static void reset(int fd) {
    std::this_thread::sleep_for(milliseconds(5));
    const linger at_once{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    shutdown(fd, SHUT_RD);
    dup2(open("/dev/null", O_RDONLY), fd);  // closes it; the number is closed with the others
  }

  std::string answer_;
  milliseconds each_;
  bool resets_;
  int listening_ = -1, port_ = 0;
  std::vector<int> kept_;
  std::thread thread_;
};

TEST(Redis, ABuildWithoutAClientSaysSo) {
  std::string said;
  on_warning([&](const std::string& text) { said += text; });
  const RemoteCache cache("redis://127.0.0.1:1", kSecret, milliseconds(100));
  on_warning(nullptr);
  EXPECT_EQ(said.find("has no client for Redis") != said.npos, redis_client().empty()) << said;
}

TEST_F(Remote, IsRefusedWithoutASecret) {
  RemoteCache cache("redis://127.0.0.1:1", "", milliseconds(100));
  EXPECT_FALSE(cache.read("key"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("TORCHBOLT_CACHE_KEY is not set"), std::string::npos);
}

TEST_F(Remote, ASilentServerCostsOneWaitAndOneWarning) {
  const Server server("");
  RemoteCache cache(server.url(), kSecret, milliseconds(100));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(cache.read("key"));
    cache.write("key", "bytes");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1000));
  EXPECT_EQ(server.connections, 1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("does not answer within 100 ms"), std::string::npos);
  EXPECT_EQ(warnings[0].find("word"), std::string::npos);
}

TEST_F(Remote, AServerThatSendsAByteNowAndThenCostsOneWait) {
  const Server server("$1000\r\n", milliseconds(40));
  RemoteCache cache(server.url(), kSecret, milliseconds(200));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(cache.read("key"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1000));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("does not answer within 200 ms"), std::string::npos) << warnings[0];
}

/// Signals are as they are where nobody asked otherwise: a write to a closed connection would end the
/// process.
TEST_F(Remote, AConnectionThatWasResetIsMadeAnew) {
  const Server server("+OK\r\n$-1\r\n", milliseconds(0), /*resets=*/true);
  RemoteCache cache(server.url(), kSecret, milliseconds(500));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(cache.read("key"));
    cache.write("key", std::string(1 << 20, 'x'));
  }
  EXPECT_LE(warnings.size(), 1u);
}

TEST_F(Remote, WhatIsNoAnswerCountsAsNone) {
  int each = 0;
  for (const char* answer : {"-ERR no\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "$99999999999999\r\n",
                             "$5x\r\n", ":1\r\n", "+OK\r\n$-7\r\n+OK\r\n", "*1\r\n"}) {
    const Server server(answer);
    RemoteCache cache(server.url(), kSecret, milliseconds(100));
    EXPECT_FALSE(cache.read("key")) << answer;
    EXPECT_LE(warnings.size(), static_cast<size_t>(++each)) << answer;
  }
}

TEST_F(Remote, WhatIsNotSignedIsNotTaken) {
  const std::string foreign = "BOLTREM1" + std::string(32, 'x') + "code";
  for (const std::string& value : {foreign, std::string("short"), std::string()}) {
    const Server server("+OK\r\n$" + std::to_string(value.size()) + "\r\n" + value + "\r\n");
    RemoteCache cache(server.url(), kSecret, milliseconds(500));
    EXPECT_FALSE(cache.read("key"));
    ASSERT_FALSE(warnings.empty());
    EXPECT_NE(warnings.back().find("signature does not hold"), std::string::npos) << warnings.back();
  }
}

TEST_F(Remote, TakesWhatIsSignedUnderItsName) {
  const std::string name = RemoteCache::name("key");
  const std::string value = "BOLTREM1" + hmac_sha256(kSecret, name + "\ncode") + "code";
  const Server server("+OK\r\n$" + std::to_string(value.size()) + "\r\n" + value + "\r\n");
  RemoteCache cache(server.url(), kSecret, milliseconds(500));
  EXPECT_EQ(cache.read("key"), "code");
  RemoteCache other(server.url(), kSecret, milliseconds(500));
  EXPECT_FALSE(other.read("other key"));
}

}  // namespace
}  // namespace bolt::cache

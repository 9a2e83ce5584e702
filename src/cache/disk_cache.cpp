// cache/disk_cache.cpp
// See disk_cache.h. File: magic, format version, length, checksum, key hash, bytes.

#include "cache/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "support/knobs.h"

namespace bolt::cache {
namespace {

namespace fs = std::filesystem;

struct Header {
  char magic[8];
  uint64_t length;
  uint64_t checksum;
  uint64_t key_hi, key_lo;
};
constexpr char kMagic[8] = {'B', 'O', 'L', 'T', 'O', 'B', 'J', '1'};
constexpr const char* kSuffix = ".bolt";

uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 p = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(p) ^ static_cast<uint64_t>(p >> 64);
}

uint64_t hash64(std::string_view bytes, uint64_t seed) {
  uint64_t h = seed ^ mix(bytes.size() + 0x9e3779b97f4a7c15ull, 0xd6e8feb86659fd93ull);
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    h = mix(h ^ word, 0xa0761d6478bd642full) + 0xe7037ed1a0b428dbull;
  }
  uint64_t last = 0;
  std::memcpy(&last, bytes.data() + at, bytes.size() - at);
  h = mix(h ^ last, 0x8ebc6af09c88c6e3ull);
  return mix(h ^ (h >> 32), 0x589965cc75374cc3ull);
}

std::mutex warning_mutex;
std::function<void(const std::string&)>& warning_handler() {
  static std::function<void(const std::string&)> handler;
  return handler;
}

/// The whole file, or nothing.
std::optional<std::string> slurp(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat info{};
  std::string bytes;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    bytes.resize(static_cast<size_t>(info.st_size));
    size_t at = 0;
    while (at < bytes.size()) {
      const ssize_t n = ::read(fd, bytes.data() + at, bytes.size() - at);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    bytes.resize(at);
  }
  close(fd);
  return bytes;
}

bool dump(const std::string& path, std::string_view head, std::string_view body) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  bool good = true;
  for (std::string_view part : {head, body}) {
    while (good && !part.empty()) {
      const ssize_t n = ::write(fd, part.data(), part.size());
      good = n > 0;
      if (good) part.remove_prefix(static_cast<size_t>(n));
    }
  }
  return close(fd) == 0 && good;
}

std::string default_folder() {
  if (!knob_bool("TORCHBOLT_CACHE")) return "";
  std::string asked = knob("TORCHBOLT_CACHE_DIR");
  if (!asked.empty()) return asked;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/torchbolt";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/torchbolt";
  return "";
}

}  // namespace

std::string Hash128::hex() const {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hi),
                static_cast<unsigned long long>(lo));
  return text;
}

Hash128 hash128(std::string_view bytes) {
  return {hash64(bytes, 0x243f6a8885a308d3ull), hash64(bytes, 0x13198a2e03707344ull)};
}

void on_warning(std::function<void(const std::string&)> handler) {
  std::lock_guard lock(warning_mutex);
  warning_handler() = std::move(handler);
}

DiskCache::DiskCache(std::string folder, int64_t limit_bytes)
    : folder_(std::move(folder)), limit_(limit_bytes) {
  std::error_code error;
  if (!folder_.empty()) fs::create_directories(folder_, error);
  if (error) folder_.clear();
}

DiskCache& DiskCache::global() {
  static DiskCache cache(default_folder(), knob_int("TORCHBOLT_CACHE_LIMIT_MB") << 20);
  return cache;
}

std::string DiskCache::path(std::string_view key) const {
  return folder_ + "/" + hash128(key).hex() + kSuffix;
}

void DiskCache::warn(const std::string& what) const {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::lock_guard lock(warning_mutex);
  const std::string text =
      "torchbolt: " + what + " in the cache " + folder_ + " is ignored and will be rewritten";
  if (warning_handler())
    warning_handler()(text);
  else
    std::fprintf(stderr, "%s\n", text.c_str());
}

std::optional<std::string> DiskCache::read(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const std::string file = path(key);
  std::optional<std::string> bytes = slurp(file);
  if (!bytes) return std::nullopt;
  Header h{};
  const Hash128 hash = hash128(key);
  bool good = bytes->size() >= sizeof h;
  if (good) std::memcpy(&h, bytes->data(), sizeof h);
  good = good && std::memcmp(h.magic, kMagic, sizeof kMagic) == 0 && h.length == bytes->size() - sizeof h &&
         h.key_hi == hash.hi && h.key_lo == hash.lo;
  if (good) bytes->erase(0, sizeof h);
  if (!good || hash64(*bytes, 0) != h.checksum) {
    warn("a damaged file (" + fs::path(file).filename().string() + ")");
    return std::nullopt;
  }
  utimensat(AT_FDCWD, file.c_str(), nullptr, 0);  // used now: the last to go
  return bytes;
}

void DiskCache::write(std::string_view key, std::string_view bytes) const {
  if (folder_.empty() || static_cast<int64_t>(bytes.size()) > limit_) return;
  static std::atomic<unsigned> counter{0};
  const Hash128 hash = hash128(key);
  Header h{{}, bytes.size(), hash64(bytes, 0), hash.hi, hash.lo};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  const std::string target = path(key);
  const std::string temporary =
      target + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".tmp";
  const std::string_view head(reinterpret_cast<const char*>(&h), sizeof h);
  if (!dump(temporary, head, bytes) || rename(temporary.c_str(), target.c_str()) != 0) {
    unlink(temporary.c_str());
    return;
  }
  if (is_time_to_trim(hash, bytes.size())) trim();
}

// Trimming asks for the size and the time of every file there is: with a hundred thousand of them that takes
// longer than to compile. So it is done once for each sixteenth of the limit that is written, by all
// processes together: which writes it falls to is chance, of which a hash has enough.
bool DiskCache::is_time_to_trim(const Hash128& key, size_t written) const {
  const double chance = 16.0 * static_cast<double>(written) / static_cast<double>(limit_);
  return std::ldexp(static_cast<double>(key.lo), -64) < chance;
}

// Oldest first until three quarters of the limit are left, so that not every write has to trim. Other
// processes may remove the same files: that is no error.
void DiskCache::trim() const {
  struct File {
    fs::path path;
    int64_t bytes;
    fs::file_time_type used;
  };
  std::vector<File> files;
  int64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    std::error_code gone;
    const int64_t bytes = static_cast<int64_t>(entry.file_size(gone));
    const fs::file_time_type used = entry.last_write_time(gone);
    if (gone) continue;
    files.push_back({entry.path(), bytes, used});
    total += bytes;
  }
  if (total <= limit_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= limit_ / 4 * 3) break;
    std::error_code gone;
    fs::remove(file.path, gone);
    total -= file.bytes;
  }
}

}  // namespace bolt::cache

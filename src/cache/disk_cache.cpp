// cache/disk_cache.cpp
// See disk_cache.h. File: magic, format version, length, checksum, key hash, bytes.

#include "cache/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "support/knobs.h"
#include "support/text.h"

namespace bolt::cache {
namespace {

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

std::string file_name(const Hash128& key) { return key.hex() + kSuffix; }

/// Files of the cache and those that it was writing when a process died, and nothing else that lies there.
bool is_ours(std::string_view name) {
  constexpr size_t kDigits = 32;
  return name.substr(0, kDigits).find_first_not_of("0123456789abcdef") == name.npos &&
         name.size() > kDigits && starts_with(name.substr(kDigits), kSuffix);
}

std::string contents(const OwnFile& file) {
  std::string bytes(static_cast<size_t>(file.info.st_size), '\0');
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t n = ::read(file.descriptor.get(), bytes.data() + at, bytes.size() - at);
    if (n <= 0) break;
    at += static_cast<size_t>(n);
  }
  bytes.resize(at);
  return bytes;
}

/// Takes the head off. False: the file is not whole, or of another key.
bool unwrap(std::string& bytes, const Hash128& key) {
  Header h{};
  if (bytes.size() < sizeof h) return false;
  std::memcpy(&h, bytes.data(), sizeof h);
  bytes.erase(0, sizeof h);
  return std::memcmp(h.magic, kMagic, sizeof kMagic) == 0 && h.length == bytes.size() && h.key_hi == key.hi &&
         h.key_lo == key.lo && h.checksum == hash64(bytes, 0);
}

/// 0, or the number of the error that it ended with.
int create(int folder, const std::string& name, std::string_view head, std::string_view body) {
  const int fd = openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int error = 0;
  for (std::string_view part : {head, body}) {
    while (error == 0 && !part.empty()) {
      const ssize_t n = ::write(fd, part.data(), part.size());
      if (n > 0)
        part.remove_prefix(static_cast<size_t>(n));
      else
        error = n < 0 ? errno : ENOSPC;
    }
  }
  if (close(fd) != 0 && error == 0) error = errno;
  return error;
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

std::string default_folder() {
  if (!knob_bool("TORCHBOLT_CACHE")) return "";
  std::string asked = knob("TORCHBOLT_CACHE_DIR");
  if (!asked.empty()) return asked;
  if (std::string torchs = knob("TORCHINDUCTOR_CACHE_DIR"); !torchs.empty()) return torchs + "/torchbolt";
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/torchbolt";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/torchbolt";
  return "";
}

DiskCache::DiskCache(std::string folder, int64_t limit_bytes)
    : folder_(std::move(folder)), own_(folder_), limit_(limit_bytes) {}

DiskCache& DiskCache::global() {
  // Never destroyed: a compilation may write while the process ends.
  static auto* cache = new DiskCache(default_folder(), knob_int("TORCHBOLT_CACHE_LIMIT_MB") << 20);
  return *cache;
}

std::string DiskCache::path(std::string_view key) const { return folder_ + "/" + file_name(hash128(key)); }

int DiskCache::usable() const {
  const std::string refusal = own_.refusal();
  if (refusal.empty() && own_.missing().empty()) return own_.descriptor();
  const std::string why = refusal.empty() ? own_.missing() : "what lies there is run and " + refusal;
  warn_once(folder_, "the cache folder " + folder_ + " is not used, because " + why +
                         ". Machine code is compiled anew in each process, unless TORCHBOLT_CACHE_DIR names "
                         "a folder that only "
                         "you may write (or TORCHBOLT_CACHE=0 asks for none)");
  return -1;
}

std::optional<std::string> DiskCache::read(std::string_view key) const {
  if (usable() < 0) return std::nullopt;
  const Hash128 hash = hash128(key);
  OwnFile file = own_.open_file(file_name(hash));
  std::string bytes;
  if (file.refusal.empty()) {
    if (!file.descriptor) return std::nullopt;
    bytes = contents(file);
    if (!unwrap(bytes, hash)) file.refusal = "is damaged";
  }
  if (!file.refusal.empty()) {
    warn_once(folder_, "a file in the cache " + folder_ +
                           " is ignored and will be rewritten: " + file_name(hash) + " " + file.refusal);
    return std::nullopt;
  }
  futimens(file.descriptor.get(), nullptr);  // used now: the last to go
  return bytes;
}

void DiskCache::write(std::string_view key, std::string_view bytes) const {
  const int folder = static_cast<int64_t>(bytes.size()) > limit_ ? -1 : usable();
  if (folder < 0) return;
  static std::atomic<unsigned> counter{0};
  const Hash128 hash = hash128(key);
  Header h{{}, bytes.size(), hash64(bytes, 0), hash.hi, hash.lo};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  const std::string target = file_name(hash);
  const std::string temporary =
      target + "." + std::to_string(getpid()) + "." + std::to_string(counter++) + ".tmp";
  const std::string_view head(reinterpret_cast<const char*>(&h), sizeof h);
  int error = create(folder, temporary, head, bytes);
  if (error == 0 && renameat(folder, temporary.c_str(), folder, target.c_str()) != 0) error = errno;
  if (error != 0) {
    unlinkat(folder, temporary.c_str(), 0);
    warn_once(folder_,
              "what was compiled cannot be written to the cache folder " + folder_ + " (" +
                  std::strerror(error) +
                  ") and is compiled anew in each process, unless there is room and you may write, or "
                  "TORCHBOLT_CACHE_DIR names another folder (TORCHBOLT_CACHE=0 asks for none)");
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
  struct Kept {
    std::string name;
    int64_t bytes;
    std::pair<time_t, long> used;
  };
  const int folder = own_.descriptor();
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(
      fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), closedir);
  std::vector<Kept> files;
  int64_t total = 0;
  while (const dirent* entry = listing ? readdir(listing.get()) : nullptr) {
    struct stat info{};
    if (!is_ours(entry->d_name) || fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    files.push_back({entry->d_name, info.st_size, {info.st_mtim.tv_sec, info.st_mtim.tv_nsec}});
    total += info.st_size;
  }
  if (total <= limit_) return;
  std::sort(files.begin(), files.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& file : files) {
    if (total <= limit_ / 4 * 3) break;
    unlinkat(folder, file.name.c_str(), 0);
    total -= file.bytes;
  }
}

}  // namespace bolt::cache

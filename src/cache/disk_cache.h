// cache/disk_cache.h
// Key text -> bytes, on disk, shared by any number of processes.
//
// One file per entry, named by a 128-bit hash of the key (which holds all content that decides the bytes: IR,
// target, build id, knobs). A file is written under a name of its own and renamed into place, so a reader
// sees a whole file or none; what it reads is checked by length and checksum. Since what is read is run, a
// folder or a file that others may write is not used at all (own_folder.h). A damaged or foreign file counts
// as absent, is reported once and is rewritten. Reading touches the file's time; when the folder has grown
// over its limit, by a few parts in a hundred, the oldest of its own files go. Nothing here ever throws:
// without a writable folder there is no cache, of which the user is told once, with what to do about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/own_folder.h"
#include "cache/warning.h"
#include "support/export.h"

namespace bolt::cache {

struct Hash128 {
  uint64_t hi = 0, lo = 0;
  std::string hex() const;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
BOLT_API Hash128 hash128(std::string_view bytes);

class BOLT_API DiskCache {
 public:
  /// An empty folder name: the cache is off.
  DiskCache(std::string folder, int64_t limit_bytes);
  /// Of TORCHBOLT_CACHE_DIR and TORCHBOLT_CACHE_LIMIT_MB, read at the first call.
  static DiskCache& global();

  std::optional<std::string> read(std::string_view key) const;
  void write(std::string_view key, std::string_view bytes) const;
  std::string path(std::string_view key) const;

 private:
  /// The folder's descriptor, or -1: none was named, or, after a warning, there is none or others may write
  /// it.
  int usable() const;
  bool is_time_to_trim(const Hash128& key, size_t written) const;
  void trim() const;
  std::string folder_;
  OwnFolder own_;
  int64_t limit_;
};

/// Where the disk cache lies, as the environment says now; "": there is none.
BOLT_API std::string default_folder();

}  // namespace bolt::cache

// codegen/common/batch.cpp: see batch.h.
#include "codegen/common/batch.h"

#include <link.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

#include "cache/disk_cache.h"
#include "cache/remote_cache.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/parallel.h"

namespace bolt::codegen {

Code::~Code() = default;

namespace {

/// Functions compiled in this process, by target and key.
class Registry {
 public:
  static Registry& get() {
    static Registry registry;
    return registry;
  }
  bool find(const std::string& target, Unit& unit) {
    std::lock_guard lock(mutex_);
    auto it = known_.find(target + unit.key);
    if (it == known_.end()) return false;
    unit.code = it->second.code.lock();
    if (!unit.code) {
      known_.erase(it);
      return false;
    }
    unit.function = it->second.function;
    return true;
  }
  void add(const std::string& target, const Unit& unit) {
    std::lock_guard lock(mutex_);
    known_[target + unit.key] = {unit.code, unit.function};
  }

 private:
  struct Known {
    std::weak_ptr<Code> code;
    void* function;
  };
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

/// Names this very library: the linker's build id, found in its ELF notes.
std::string build_id() {
  static const std::string id = [] {
    std::string text = BOLT_VERSION;
    auto visit = [](dl_phdr_info* info, size_t, void* out) {
      const auto here = reinterpret_cast<uintptr_t>(&build_id);
      bool ours = false;
      for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& h = info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + h.p_vaddr;
        ours |= h.p_type == PT_LOAD && here >= begin && here < begin + h.p_memsz;
      }
      for (int i = 0; ours && i < info->dlpi_phnum; ++i) {
        const auto& h = info->dlpi_phdr[i];
        if (h.p_type != PT_NOTE) continue;
        const char* notes = reinterpret_cast<const char*>(info->dlpi_addr + h.p_vaddr);
        static_cast<std::string*>(out)->append(" ").append(cache::hash128({notes, h.p_memsz}).hex());
      }
      return ours ? 1 : 0;
    };
    dl_iterate_phdr(visit, &text);
    return text;
  }();
  return id;
}

/// Units of the batch that nobody has compiled yet, by their place in it. Their functions are named by the
/// place among these: so the same ones have the same names in another batch, and on disk.
using Missing = std::vector<size_t>;

std::string name_of(size_t place) { return "k" + std::to_string(place); }

/// Object t holds the missing units t, t + threads, ...
std::vector<std::string> make_objects(const Missing& missing, const Compiler& compiler) {
  const size_t threads = std::min(compile_threads(), std::max<size_t>(1, missing.size() / 2));
  std::vector<std::vector<NamedUnit>> parts(threads);
  for (size_t i = 0; i < missing.size(); ++i) parts[i % threads].push_back({missing[i], name_of(i)});
  std::vector<std::string> objects(threads);
  in_parallel(threads, [&](size_t t) { objects[t] = compiler.object(parts[t]); });
  return objects;
}

void attach(std::vector<Unit>& units, const Missing& missing, const std::vector<std::string>& objects,
            const Compiler& compiler) {
  for (size_t t = 0; t < objects.size(); ++t) {
    const std::shared_ptr<Code> code = compiler.load(objects[t]);
    for (size_t i = t; i < missing.size(); i += objects.size()) {
      units[missing[i]].code = code;
      units[missing[i]].function = code->address(name_of(i));
    }
  }
}

// ---- the batch's file: number of objects, their lengths, their bytes

std::string pack(const std::vector<std::string>& objects) {
  std::string bytes;
  auto number = [&](uint64_t n) { bytes.append(reinterpret_cast<const char*>(&n), sizeof n); };
  number(objects.size());
  for (const std::string& o : objects) number(o.size());
  for (const std::string& o : objects) bytes += o;
  return bytes;
}

/// Error(Internal) for anything that pack() does not give.
std::vector<std::string> unpack(const std::string& bytes) {
  auto number = [&](size_t at) {
    uint64_t n = 0;
    if (at < bytes.size() / sizeof n) std::memcpy(&n, bytes.data() + at * sizeof n, sizeof n);
    return n;
  };
  const uint64_t count = number(0);
  BOLT_CHECK(count > 0 && count < bytes.size() / sizeof count, "a batch of ", count, " objects on disk");
  std::vector<std::string> objects;
  size_t at = sizeof count * (1 + count);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t length = number(1 + i);
    BOLT_CHECK(length <= bytes.size() - at, "an object on disk ends too early");
    objects.push_back(bytes.substr(at, length));
    at += length;
  }
  return objects;
}

std::string batch_key(const std::vector<Unit>& units, const Missing& missing, const Compiler& compiler) {
  std::string key = build_id() + "\n" + knobs_for_cache_key() + "\n" + compiler.target + "\n";
  for (size_t i : missing) key += units[i].key;
  return key;
}

/// False: there are none, or they were checked by their sum and are yet unusable.
bool attach_found(std::vector<Unit>& units, const Missing& missing, const std::optional<std::string>& bytes,
                  const Compiler& compiler) {
  try {
    if (bytes) attach(units, missing, unpack(*bytes), compiler);
    return bytes.has_value();
  } catch (const Error&) {
    return false;
  }
}

/// From disk, from the shared cache, which leaves them on disk, or else by compiling them, which leaves them
/// in both. False: they had to be compiled.
bool find_or_make(std::vector<Unit>& units, const Missing& missing, const Compiler& compiler) {
  const cache::DiskCache& disk = cache::DiskCache::global();
  cache::RemoteCache& remote = cache::RemoteCache::global();
  const std::string key = batch_key(units, missing, compiler);
  if (attach_found(units, missing, disk.read(key), compiler)) return true;
  if (const std::optional<std::string> bytes = remote.read(key);
      attach_found(units, missing, bytes, compiler)) {
    disk.write(key, *bytes);
    return true;
  }
  const std::vector<std::string> objects = make_objects(missing, compiler);
  attach(units, missing, objects, compiler);
  const std::string bytes = pack(objects);
  disk.write(key, bytes);
  remote.write(key, bytes);
  return false;
}

}  // namespace

bool compile(std::vector<Unit>& units, const Compiler& compiler) {
  Missing missing;
  for (size_t i = 0; i < units.size(); ++i)
    if (!Registry::get().find(compiler.target, units[i])) missing.push_back(i);
  if (missing.empty()) return true;
  const bool found = find_or_make(units, missing, compiler);
  for (size_t i : missing) Registry::get().add(compiler.target, units[i]);
  return found;
}

}  // namespace bolt::codegen

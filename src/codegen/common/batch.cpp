// codegen/common/batch.cpp
#include "codegen/common/batch.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "cache/disk_cache.h"
#include "cache/identity.h"
#include "cache/remote_cache.h"
#include "support/error.h"
#include "support/knobs.h"
#include "support/parallel.h"

namespace bolt::codegen {

MachineCode::~MachineCode() = default;

namespace {

/// As many threads compile at once as there may be compile threads, whatever the number of batches.
struct CompileTurns {
  std::mutex mutex;
  std::condition_variable changed;
  size_t running = 0;
};

// Never destroyed: a thread may outlive static objects.
CompileTurns* turns = new CompileTurns();
int forks = 0;

/// A child has none of the threads that have a turn, or are about to compile what others wait for.
void after_fork() {
  turns = new CompileTurns();
  ++forks;
}

class CompileTurn {
 public:
  CompileTurn() {
    std::unique_lock lock(all_.mutex);
    all_.changed.wait(lock, [&] { return all_.running < compile_threads(); });
    ++all_.running;
  }
  ~CompileTurn() {
    {
      std::lock_guard lock(all_.mutex);
      --all_.running;
    }
    all_.changed.notify_one();
  }
  CompileTurn(const CompileTurn&) = delete;

 private:
  CompileTurns& all_ = *turns;
};

/// Functions compiled in this process, or being compiled, by target and key.
class Registry {
 public:
  static Registry& get() {
    static const int registered = pthread_atfork(nullptr, nullptr, after_fork);
    (void)registered;
    static Registry registry;
    return registry;
  }
  bool find(const std::string& target, BatchUnit& unit) {
    std::lock_guard lock(mutex_);
    const auto it = known_.find(target + unit.key);
    return it != known_.end() && it->second.give(unit);
  }
  /// Is it nobody else's to compile? Then it is `maker`'s from now on. Otherwise it has its code, or *made
  /// says when to look again.
  bool claim(const std::string& target, BatchUnit& unit, const std::shared_future<void>& maker,
             std::shared_future<void>* made) {
    std::lock_guard lock(mutex_);
    Known& known = known_[target + unit.key];
    if (known.give(unit)) return false;
    if (known.is_under_way()) {
      *made = known.made;
      return false;
    }
    known = {{}, nullptr, maker, forks};
    return true;
  }
  void add(const std::string& target, const BatchUnit& unit) {
    std::lock_guard lock(mutex_);
    Known& known = known_[target + unit.key];
    known.code = unit.code;
    known.function = unit.function;
  }

 private:
  struct Known {
    std::weak_ptr<MachineCode> code;
    void* function = nullptr;
    std::shared_future<void> made;
    int made_after = 0;  ///< so many forks

    bool is_under_way() const {
      return made.valid() && made_after == forks &&
             made.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    }
    bool give(BatchUnit& unit) const {
      unit.code = code.lock();
      if (unit.code) unit.function = function;
      return unit.code != nullptr;
    }
  };

  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

/// Names this very library.
std::string build_id() {
  static const std::string id = cache::identity_of(reinterpret_cast<const void*>(&build_id));
  return id;
}

/// Units of the batch that nobody has compiled yet, by their place in it. Their functions are named by the
/// place among these: so the same ones have the same names in another batch, and on disk.
using Missing = std::vector<size_t>;

std::string name_of(size_t place) { return "k" + std::to_string(place); }

/// By object, the places among the missing units of those that it holds. Each is compiled by a thread, and
/// all wait for the last one: the longest texts, which take longest as a rule, go to different objects.
std::vector<std::vector<size_t>> shares(const std::vector<BatchUnit>& units, const Missing& missing,
                                        size_t objects) {
  std::vector<size_t> order(missing.size());
  std::iota(order.begin(), order.end(), 0);
  auto length = [&](size_t place) { return units[missing[place]].key.size(); };
  std::ranges::stable_sort(order, std::ranges::greater(), length);
  std::vector<std::vector<size_t>> out(objects);
  std::vector<size_t> total(objects);
  for (const size_t place : order) {
    const auto least = static_cast<size_t>(std::ranges::min_element(total) - total.begin());
    out[least].push_back(place);
    total[least] += length(place);
  }
  return out;
}

std::vector<std::string> make_objects(const std::vector<BatchUnit>& units, const Missing& missing,
                                      const Compiler& compiler) {
  const size_t threads = std::min(compile_threads(), std::max<size_t>(1, missing.size() / 2));
  const std::vector<std::vector<size_t>> parts = shares(units, missing, threads);
  std::vector<std::string> objects(threads);
  in_parallel(threads, [&](size_t t) {
    std::vector<NamedUnit> share;
    for (const size_t place : parts[t]) share.push_back({missing[place], name_of(place)});
    const CompileTurn turn;
    objects[t] = compiler.object(share);
  });
  return objects;
}

void attach(std::vector<BatchUnit>& units, const Missing& missing, const std::vector<std::string>& objects,
            const Compiler& compiler) {
  const std::vector<std::vector<size_t>> parts = shares(units, missing, objects.size());
  for (size_t t = 0; t < objects.size(); ++t) {
    const std::shared_ptr<MachineCode> code = compiler.load(objects[t]);
    for (const size_t place : parts[t]) {
      units[missing[place]].code = code;
      units[missing[place]].function = code->address(name_of(place));
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

std::string batch_key(const std::vector<BatchUnit>& units, const Missing& missing, const Compiler& compiler) {
  std::string key = build_id() + "\n" + knobs_for_cache_key() + "\n" + compiler.target + "\n";
  for (size_t i : missing) key += units[i].key;
  return key;
}

/// False: there are none, or they were checked by their sum and are yet unusable.
bool attach_found(std::vector<BatchUnit>& units, const Missing& missing,
                  const std::optional<std::string>& bytes, const Compiler& compiler) {
  try {
    if (bytes) attach(units, missing, unpack(*bytes), compiler);
    return bytes.has_value();
  } catch (const Error&) {
    return false;
  }
}

/// From disk, from the shared cache, which leaves them on disk, or else by compiling them, which leaves them
/// in both. False: they had to be compiled.
bool find_or_make(std::vector<BatchUnit>& units, const Missing& missing, const Compiler& compiler) {
  const cache::DiskCache& disk = cache::DiskCache::global();
  cache::RemoteCache& remote = cache::RemoteCache::global();
  const std::string key = batch_key(units, missing, compiler);
  if (attach_found(units, missing, disk.read(key), compiler)) return true;
  if (const std::optional<std::string> bytes = remote.read(key);
      attach_found(units, missing, bytes, compiler)) {
    disk.write(key, *bytes);
    return true;
  }
  const std::vector<std::string> objects = make_objects(units, missing, compiler);
  attach(units, missing, objects, compiler);
  const std::string bytes = pack(objects);
  disk.write(key, bytes);
  remote.write(key, bytes);
  return false;
}

}  // namespace

Batch::Batch(std::vector<BatchUnit> units, Compiler compiler)
    : units_(std::move(units)), compiler_(std::move(compiler)) {
  const std::shared_future<void> maker = promise_.get_future().share();
  for (size_t i = 0; i < units_.size(); ++i) {
    std::shared_future<void> made;
    if (Registry::get().claim(compiler_.target, units_[i], maker, &made))
      ours_.push_back(i);
    else if (!units_[i].code)
      others_.push_back({i, std::move(made)});
  }
  // Each thread compiles large ones and small ones.
  std::ranges::stable_sort(ours_, std::greater(), [&](size_t i) { return units_[i].key.size(); });
}

Batch::~Batch() = default;  // a promise that is not kept wakes those that wait, too

bool Batch::make(const Missing& units) {
  if (units.empty()) return true;
  const bool found = find_or_make(units_, units, compiler_);
  for (size_t i : units) Registry::get().add(compiler_.target, units_[i]);
  return found;
}

bool Batch::compile() {
  bool found = false;
  {
    std::promise<void> promise = std::move(promise_);  // whatever happens, nobody waits any longer
    found = make(ours_);
    promise.set_value();
  }
  Missing left;  // whoever was to compile them failed, or has gone
  for (const Awaited& other : others_) {
    other.made.wait();
    if (!Registry::get().find(compiler_.target, units_[other.unit])) left.push_back(other.unit);
  }
  return make(left) && found;
}

}  // namespace bolt::codegen

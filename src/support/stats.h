// support/stats.h
// What the process did so far, counted where it happens; torchbolt.stats() shows it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace bolt {

struct Stats {
  std::atomic<int64_t> regions{0}, recordings{0}, graph_breaks{0}, recompiles{0}, eager_fallbacks{0},
      cache_hits{0}, cache_misses{0}, specialized{0}, graphs{0}, graph_replays{0};
  /// What programs computed of parameters beforehand: how often, how often of those because parameters had
  /// changed, and calls that found what fits them.
  std::atomic<int64_t> foldings{0}, foldings_again{0}, folded_calls{0};
  /// Regions that were measured beside eager, those of them planned again, and those given to eager.
  std::atomic<int64_t> measured{0}, planned_again{0}, slower_than_eager{0};
  std::atomic<int64_t> compile_nanoseconds{0};

  void count_break(const std::string& reason);
  std::map<std::string, int64_t> break_reasons();
  void reset();
  static Stats& get();

 private:
  std::mutex mutex_;
  std::map<std::string, int64_t> break_reasons_;
};

}  // namespace bolt

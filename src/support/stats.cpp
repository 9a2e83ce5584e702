// support/stats.cpp
#include "support/stats.h"

namespace bolt {

Stats& Stats::get() {
  static Stats stats;
  return stats;
}
void Stats::count_break(const std::string& reason) {
  ++graph_breaks;
  std::lock_guard lock(mutex_);
  ++break_reasons_[reason];
}
std::map<std::string, int64_t> Stats::break_reasons() {
  std::lock_guard lock(mutex_);
  return break_reasons_;
}
void Stats::reset() {
  for (auto* n : {&regions, &recordings, &graph_breaks, &recompiles, &eager_fallbacks, &cache_hits,
                  &cache_misses, &compile_nanoseconds, &specialized, &graphs, &graph_replays, &foldings,
                  &foldings_again, &folded_calls, &measured, &planned_again, &slower_than_eager})
    *n = 0;
  std::lock_guard lock(mutex_);
  break_reasons_.clear();
}

}  // namespace bolt

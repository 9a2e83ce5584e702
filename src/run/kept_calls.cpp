// run/kept_calls.cpp
#include "run/kept_calls.h"

#include <algorithm>
#include <utility>

namespace bolt::run {
namespace {

constexpr size_t kMostIdle = 2;     // calls whose memory is kept
constexpr size_t kMostShapes = 64;  // sets of sizes remembered

}  // namespace

std::shared_ptr<const Shapes> KeptCalls::shapes_for(const Ints& sizes) {
  {
    std::lock_guard lock(mutex_);
    for (auto at = shapes_.begin(); at != shapes_.end(); ++at) {
      if ((*at)->key != sizes) continue;
      std::rotate(shapes_.begin(), at, at + 1);
      return shapes_[0];
    }
  }
  auto made = p_.shapes(sizes);
  std::lock_guard lock(mutex_);
  if (shapes_.size() >= kMostShapes) shapes_.pop_back();
  shapes_.insert(shapes_.begin(), made);
  return made;
}

std::unique_ptr<Execution> KeptCalls::take(const Ints& sizes) {
  std::unique_ptr<Execution> found;
  {
    std::lock_guard lock(mutex_);
    auto at = std::find_if(idle_.begin(), idle_.end(), [&](const auto& e) { return e->is_for(sizes); });
    if (at == idle_.end() && !idle_.empty()) at = idle_.end() - 1;
    if (at != idle_.end()) {
      found = std::move(*at);
      idle_.erase(at);
    }
  }
  return found ? std::move(found) : std::make_unique<Execution>(p_);
}

void KeptCalls::give_back(std::unique_ptr<Execution> execution) {
  std::lock_guard lock(mutex_);
  if (idle_.size() < kMostIdle) idle_.push_back(std::move(execution));
}

void KeptCalls::drop_idle_memory() {
  std::vector<std::unique_ptr<Execution>> idle;
  std::lock_guard lock(mutex_);
  idle.swap(idle_);
}

}  // namespace bolt::run

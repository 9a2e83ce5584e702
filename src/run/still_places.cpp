// run/still_places.cpp
#include "run/still_places.h"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace bolt::run {
namespace {

/// A recording that takes another's place has its results where they lay, so a place may count twice.
struct Counted {
  std::mutex mutex;
  std::unordered_map<uintptr_t, int> places;

  static Counted& get() {
    static auto* counted = new Counted;  // recordings may die after every static
    return *counted;
  }
};

}  // namespace

StillPlaces::StillPlaces(std::vector<uintptr_t> places) : places_(std::move(places)) {
  Counted& counted = Counted::get();
  const std::lock_guard lock(counted.mutex);
  for (uintptr_t place : places_) ++counted.places[place];
}

StillPlaces::~StillPlaces() {
  if (places_.empty()) return;
  Counted& counted = Counted::get();
  const std::lock_guard lock(counted.mutex);
  for (uintptr_t place : places_)
    if (const auto at = counted.places.find(place); --at->second == 0) counted.places.erase(at);
}

StillPlaces& StillPlaces::operator=(StillPlaces&& other) noexcept {
  std::swap(places_, other.places_);
  return *this;
}

bool StillPlaces::contain(uintptr_t place) {
  Counted& counted = Counted::get();
  const std::lock_guard lock(counted.mutex);
  return counted.places.contains(place);
}

}  // namespace bolt::run

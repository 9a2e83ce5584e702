// run/still_places.h
// Where recordings have results that their callers are given as they lie: the same places in each call.
//
// A program that is given such a result (a backward pass is given what the forward pass keeps) finds it there
// from the first call that repeats the recording, so nothing has to be watched before it is read in place.
#pragma once

#include <cstdint>
#include <vector>

namespace bolt::run {

/// These places are still as long as this lives.
class StillPlaces {
 public:
  StillPlaces() = default;
  explicit StillPlaces(std::vector<uintptr_t> places);
  ~StillPlaces();
  StillPlaces(const StillPlaces&) = delete;
  StillPlaces& operator=(const StillPlaces&) = delete;
  StillPlaces& operator=(StillPlaces&& other) noexcept;

  /// Of any recording.
  static bool contain(uintptr_t place);

 private:
  std::vector<uintptr_t> places_;
};

}  // namespace bolt::run

// support/stages.h
// What a compilation costs, told as it goes: the time of each stage, and the memory, which is given back.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bolt {

class SizeDemand;

/// Names the stage that is running and how long each took.
class Stages {
 public:
  void enter(const char* name);
  void finish();
  /// Where a demand came up that ended the stage which is running, and what it is.
  std::string where(const SizeDemand& demand) const;
  std::vector<std::pair<std::string, double>> seconds;

 private:
  using Clock = std::chrono::steady_clock;
  const char* name_ = nullptr;
  Clock::time_point begin_;
};

/// The compiler's memory goes back before the first run packs weights: the peaks do not add up. But only
/// where it is much: whoever allocates next faults it in again, page by page, and to the next compilation
/// that was a third of all stages but code generation.
class GiveMemoryBack {
 public:
  GiveMemoryBack();
  ~GiveMemoryBack();

 private:
  const int64_t before_;
};

}  // namespace bolt

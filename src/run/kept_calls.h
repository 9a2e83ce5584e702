// run/kept_calls.h
// What calls of a program leave for the next ones: their memory (execution.h), and everything that rests on
// sizes, for the sets of sizes met last (prepared.h). Calls on several threads may ask at once.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "run/execution.h"

namespace bolt::run {

class KeptCalls {
 public:
  explicit KeptCalls(const Prepared& prepared) : p_(prepared) {}

  std::shared_ptr<const Shapes> shapes_for(const Ints& sizes);
  /// One of these sizes where there is one.
  std::unique_ptr<Execution> take(const Ints& sizes);
  void give_back(std::unique_ptr<Execution> execution);
  void drop_idle_memory();

 private:
  const Prepared& p_;
  std::mutex mutex_;                                   // guards all below
  std::vector<std::shared_ptr<const Shapes>> shapes_;  // last used first
  std::vector<std::unique_ptr<Execution>> idle_;
};

}  // namespace bolt::run

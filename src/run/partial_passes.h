// run/partial_passes.h
// A backward part and the tangents that a pass is given -> the program for such passes: the part itself, or
// one in which the others lead nowhere (autograd/some_tangents.h), made when the first such pass comes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "autograd/partition.h"
#include "run/compiled.h"

namespace bolt::run {

class PartialPasses {
 public:
  struct Program {
    record::Tape tape;
    std::vector<record::TensorId> wanted;
    std::shared_ptr<Compiled> compiled;  ///< null: it is replayed
  };
  /// Those that are compiled from now on, as Compiled::launch_at_once.
  void launch_at_once(std::string name) { name_ = std::move(name); }
  /// Some of the tangents are not `given`, and `wanted` are the gradients that the others lead to. Null: the
  /// whole part will do. `sizes_differ`: between calls. Then, and where there are many such
  /// programs already, it is replayed.
  std::shared_ptr<const Program> of(const Compiled& backward, const std::vector<bool>& given,
                                    const std::vector<record::TensorId>& wanted, bool sizes_differ,
                                    const autograd::Budget& budget);

 private:
  std::string name_;  ///< "": they are launched step by step
  std::mutex mutex_;
  std::map<std::vector<bool>, std::shared_ptr<const Program>> known_;
};

}  // namespace bolt::run

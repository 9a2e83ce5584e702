// run/partial_passes.h
// A backward part and the tangents that a pass is given -> the program for such passes: the part itself, or
// one in which the others lead nowhere (autograd/some_tangents.h), made when the first such pass comes.
#pragma once

#include <map>
#include <memory>
#include <mutex>
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
  /// Null: the whole part will do. `sizes_differ`: between calls. Then, and where there are many such
  /// programs already, it is replayed.
  std::shared_ptr<const Program> of(const Compiled& backward, const std::vector<bool>& given,
                                    const std::vector<record::TensorId>& wanted, bool sizes_differ,
                                    const autograd::Budget& budget);

 private:
  std::mutex mutex_;
  std::map<std::vector<bool>, std::shared_ptr<const Program>> known_;
};

}  // namespace bolt::run

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
#include "run/trained_sizes.h"

namespace bolt::run {

class PartialPasses {
 public:
  struct Program {
    record::Tape tape;
    std::vector<record::TensorId> wanted;
    std::shared_ptr<Compiled> compiled;  ///< null: it is replayed
    // Where sizes differ between calls, over the region's symbols.
    Syms symbols;  ///< what each of those of `compiled` is
    std::vector<SizeFact>
        facts;  ///< what it takes for granted and no guard looks at; elsewhere it is replayed

    /// `values`: of the region's symbols.
    bool is_compiled_for(const TrainedSizes* sizes, const Ints& values) const {
      return compiled && (!sizes || sizes->hold(facts, values));
    }
  };
  /// Those that are compiled from now on, as Compiled::launch_at_once.
  void launch_at_once(std::string name) { name_ = std::move(name); }
  /// Some of the tangents are not `given`, and `wanted` are the gradients that the others lead to. Null: the
  /// whole part will do. `sizes`: null where none differ between calls. Where there are many such programs
  /// already, it is replayed.
  std::shared_ptr<const Program> of(const Compiled& backward, const std::vector<bool>& given,
                                    const std::vector<record::TensorId>& wanted, const TrainedSizes* sizes,
                                    const autograd::Budget& budget);

 private:
  std::string name_;  ///< "": they are launched step by step
  std::mutex mutex_;
  std::map<std::vector<bool>, std::shared_ptr<const Program>> known_;
};

}  // namespace bolt::run

// run/trained/partial_passes.h
// A backward part and how a pass comes to its results -> the program for such passes: the part itself, or one
// in which the tangents that are not given lead nowhere (autograd/some_tangents.h), and that comes to inner
// results as the pass does (autograd/inner_results.h), made when the first such pass comes.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "autograd/inner_results.h"
#include "run/compiled.h"
#include "run/trained/trained_sizes.h"
#include "run/wishes.h"

namespace bolt::run {

class PartialPasses {
 public:
  struct Kind {
    std::vector<bool> given;              ///< by tangent
    std::vector<autograd::Arrives> ways;  ///< by inner result
    record::TensorId asked;               ///< the gradient of an inner result; -1: those of the inputs
    auto operator<=>(const Kind&) const = default;
  };
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
  /// `wanted`: gradients that the given tangents lead to. Null: the whole part will do, which `inner` must be
  /// empty for. `sizes`: null where none differ between calls. Where there are many such programs already, it
  /// is replayed.
  std::shared_ptr<const Program> of(const record::Tape& backward, const std::vector<autograd::Inner>& inner,
                                    const Kind& kind, const std::vector<record::TensorId>& wanted,
                                    const TrainedSizes* sizes, const Wishes& wishes);

 private:
  std::string name_;  ///< "": they are launched step by step
  std::mutex mutex_;
  std::map<Kind, std::shared_ptr<const Program>> known_;
};

}  // namespace bolt::run

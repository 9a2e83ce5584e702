// run/trained/trained_sizes.h
// The sizes of a call of a region that gradients are needed of -> whether its two parts are right for them,
// and what they mean for the backward part.
//
// The parts were made from one recorded run, and how sizes go through them is a guess (autograd/follow.h). So
// the run is tried once with each set of sizes. The facts that the parts themselves rest on are guards of the
// region: nothing of them is looked at here.
//
// The backward part runs later, perhaps after other forward parts, and some of its inputs may be missing. So
// nothing is read off these: all that it is given, and how it has to lie, follows from the values of the
// region's symbols that the node kept.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "autograd/joint.h"
#include "lower/sizes.h"
#include "run/evaluate.h"
#include "support/bounded_map.h"

namespace bolt::run {

/// How an input of the backward part lies, over the region's symbols.
struct LayoutOverRegion {
  Syms sizes, strides;
};

/// Of an expression over symbols of the backward part, whose inputs lie as `layouts` say.
Sym over_region(Sym s, const lower::Sizes& backward, const std::vector<LayoutOverRegion>& layouts,
                const lower::Sizes& region);

class TrainedSizes {
 public:
  using Layout = LayoutOverRegion;
  /// Expressions are over the region's symbols.
  struct Parts {
    autograd::Joint joint;
    record::Tape run;  ///< that the joint tape was made from; its arguments are over the joint's symbols
    std::vector<record::TensorId> wanted;
    std::set<record::TensorId> parts;
    std::set<int> own;
    std::set<record::TensorId> inner;
    lower::Sizes region;
    lower::Sizes backward;          ///< as its program left them; over symbols of its own
    Syms joint_symbols;             ///< what each symbol of the joint is
    Syms backward_symbols;          ///< what each symbol of the backward part's program is
    std::vector<Layout> backwards;  ///< of its inputs

    /// Of symbols of a program that has the backward part's inputs, and was made with these sizes.
    Syms over_region(const SymbolTable& program, const lower::Sizes& sizes) const;
  };
  explicit TrainedSizes(Parts parts);

  /// What rests on one set of sizes.
  struct Set {
    struct Lies {
      Ints sizes, strides;
    };
    bool agrees = false;
    std::vector<Lies> backwards;  ///< by input of the backward part
  };
  /// `values`: of the region's symbols. Tries the run where it has not met them.
  std::shared_ptr<const Set> of(const Ints& values) const;
  /// Of the symbols of the backward part's program.
  Ints for_backward(const Ints& values) const { return over_region(p_.backward_symbols, values); }
  /// Of expressions over the region's symbols.
  Ints over_region(const Syms& symbols, const Ints& values) const {
    return Evaluate{region_, values}(symbols);
  }
  bool hold(const std::vector<SizeFact>& facts, const Ints& values) const;
  const Parts& parts() const { return p_; }
  /// Of a number that stands on the joint tape, or on a part of it.
  std::function<int64_t(Sym)> on_joint_tape(const Ints& values) const;

 private:
  Ints joint_values(const Ints& values) const { return over_region(p_.joint_symbols, values); }
  Ints key_of(const Ints& joint_values) const;
  std::shared_ptr<const Set> made(const Ints& values, const Ints& joint_values) const;

  const Parts p_;
  const SymbolTable region_;  ///< whose values a call has
  mutable std::mutex mutex_;
  /// A data set has so many lengths, seldom more.
  mutable BoundedMap<std::map<Ints, std::shared_ptr<const Set>>, 1024> sets_;
};

}  // namespace bolt::run

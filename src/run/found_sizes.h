// run/found_sizes.h
// What was recorded behind sizes that are data -> whether it can be compiled so.
#pragma once

#include <stdexcept>
#include <string>

#include "lower/sizes.h"
#include "run/recorded.h"

namespace bolt::run {

/// It cannot. The region has to end before the operator that finds them out.
struct EndsAtFoundSizes : std::runtime_error {
  /// `of_rows`: it might be where only what nobody differentiates, and lies on the host, has such sizes.
  EndsAtFoundSizes(const std::string& why, bool of_rows) : std::runtime_error(why), of_rows(of_rows) {}
  bool of_rows;
};

/// A backward pass inside of what was recorded cannot be part of a program. Where the region ends before it,
/// what lies on both sides can be compiled.
struct EndsBeforeBackward : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class FoundSizes {
 public:
  /// Where gradients are needed, sizes that masks decide are taken off the tape, if no part of the program
  /// has to rest on them (autograd/selected_rows.h), and nothing else differs between calls that the joint
  /// tape would have to be followed by.
  explicit FoundSizes(Recorded& recorded);

  /// Throws EndsAtFoundSizes where a device would have to be waited for, and EndsBeforeBackward where sizes
  /// that are left are wanted in a whole step, which is not made in pieces.
  bool needs_gradients(const lower::Sizes& sizes) const;
  /// It is to be replayed, which is worth nothing if there are such sizes: throws EndsAtFoundSizes then.
  void end_if_any(const lower::Sizes& sizes, const std::string& why) const;

 private:
  const bool differentiates_, on_device_, ends_before_backward_, of_rows_, selects_;
};

}  // namespace bolt::run

// lower/probe.h
// A call of ATen that no rule is known for -> the sizes of its results as expressions, found out by trying.
//
// The operator is called on tensors of other sizes: on ones without memory (the Meta device), or, where it
// has no kernel there and is given one tensor, on small ones of the CPU. Nobody vouches for what is tried:
// where memory is at hand, kernels that do not check what they are given would write past its end. An
// expression over the sizes it was given that holds for all trials, and for the recorded run, is taken for
// the rule. It is a guess: the program compares what ATen gives with it at each call. Where other floats give
// other sizes there is no rule: no expression is made of floats.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "record/tape.h"

namespace bolt::lower {

/// What is known of the call when it is lowered.
struct Probed {
  const record::Entry& entry;
  const record::Tape& tape;
  std::function<Syms(record::TensorId)> sizes;  ///< of a tensor argument
  std::function<Sym(Sym)> resolve;              ///< of a number among the arguments
  std::function<int64_t(Sym)> hint;             ///< what it was in the recorded run
};

/// Per result, also of those that are no tensors; nothing: it cannot be tried, or no expression holds.
std::optional<std::vector<Syms>> probe_sizes(const Probed& call);

}  // namespace bolt::lower

// lower/attention_masks.h
// A tape -> the same tape, in which attention whose mask hides nothing, or just what lies ahead, has no mask.
//
// Where gradients are needed, ATen itself takes attention apart (autograd/), and its kernels for masks need
// several times the time and the memory of those for none. So the masks are told before: they are lowered
// alone, and what is known of them is graph/passes/fold_masks.cpp's.
//
// Without a mask another kernel runs, whose result may lie otherwise. A copy brings it into the recorded
// order; the graph knows no order and drops it. Where that is not all that differs, the caller finds out when
// he replays the tape, and takes the one with masks.
#pragma once

#include <optional>
#include <string>

#include "lower/sizes.h"
#include "record/tape.h"
#include "support/error.h"
#include "support/log.h"

namespace bolt::lower {

/// Nothing: there is no such mask. `sizes`: of the tape.
std::optional<record::Tape> without_masks(const record::Tape& tape, Sizes& sizes);

/// What `make` makes of that tape, or, where there is none or it cannot be, of the tape as it is. `name`: of
/// the region, for logs.
template <typename Make>
auto rather_unmasked(const record::Tape& tape, Sizes sizes, const std::string& name, const Make& make) {
  if (const std::optional<record::Tape> unmasked = without_masks(tape, sizes)) {
    try {
      return make(*unmasked);
    } catch (const Unsupported& error) {
      log("perf_hints", name + ": attention keeps masks that hide nothing, because " + error.what());
    }
  }
  return make(tape);
}

}  // namespace bolt::lower

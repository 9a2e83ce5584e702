// record/communications.h
// How often a thread has spoken to other processes (OperatorFacts::communicates). Whatever else fails may be
// run again, by eager, as if nothing had happened; the others have had their part of a collective, and would
// take the second one for the next.
#pragma once

#include <cstdint>

namespace bolt::record {

uint64_t& communications();  ///< of this thread, so far

/// Since it was made.
class Communications {
 public:
  bool any() const { return communications() != before_; }

 private:
  uint64_t before_ = communications();
};

}  // namespace bolt::record

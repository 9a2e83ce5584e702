// loops/arena.h
// Lifetimes -> places: lays temporaries into one block of memory.
//
// Two buffers may share bytes when no step needs both. Known sizes: largest first, each at the lowest place
// where it fits between what is alive at the same time. Sizes with symbols stand behind those in slots: a
// slot is used again by any buffer of the same symbolic size. All places are multiples of 64 bytes.
#pragma once

#include <vector>

#include "support/sym.h"

namespace bolt::loops {

struct ArenaRequest {
  Sym bytes;
  int first_step, last_step;  // inclusive
};
struct ArenaLayout {
  Syms offsets;  // of each request
  Sym bytes;
};
ArenaLayout lay_out(const std::vector<ArenaRequest>& requests);

}  // namespace bolt::loops

// observe/writes/give_back.h
// A recorded run -> the user's own numbers and texts in all that it leaves.
// While it was recorded, those that are told apart by their addresses were copies (World::stands_for).
#pragma once

#include "interp/frame.h"
#include "observe/world.h"

namespace bolt::observe {

/// In frames (from the innermost, may be null, to `entry`, also where C code lies between) or the result (may
/// be null), in what the run made that is found there, and in what it wrote to: the program may ask later
/// which object one is.
void give_numbers_back(World& world, const interp::Frame* innermost, const interp::Frame* entry,
                       PyObject*& result);

}  // namespace bolt::observe

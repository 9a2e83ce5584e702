// interp/liveness.h
// Which locals of a frame can still be read: what a region that begins or ends there has to know about.
#pragma once

#include <vector>

#include "interp/code.h"

namespace bolt::interp {

/// One flag per slot of Frame::locals(): true if some path from `pc` reads the slot before writing it. With
/// `after`, from the end of the instruction at `pc` (a call in progress). Cells and free variables, and
/// everything in code that asks for locals(), count as read.
const std::vector<bool>& live_locals(PyCodeObject* code, const Code& prepared, int pc, bool after);

}  // namespace bolt::interp

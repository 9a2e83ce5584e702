// observe/reads/slots.h: for_each_slot.
#pragma once

#include "observe/ends/frames.h"

namespace bolt::observe {

/// `visit` gets every local and every value on the stack of a run.
template <class Visit>
void for_each_slot(const interp::Frame& innermost, Visit visit) {
  for (const interp::Frame* frame : frames_of(innermost)) {
    for (int i = 0; i < frame->local_count(); ++i)
      if (frame->locals()[i]) visit(frame->locals()[i]);
    for (PyObject** at = frame->stack_base(); at < frame->sp; ++at)
      if (*at) visit(*at);
  }
}

}  // namespace bolt::observe

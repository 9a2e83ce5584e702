// observe/ends/frames.h
// A run that stands still between two instructions -> the start of a region: where it stands, and what can be
// read from there. Later runs that come to the same place find the region by it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "guard/thread_state.h"
#include "guard/transforms.h"
#include "interp/flow.h"
#include "interp/frame.h"
#include "interp/semantics.h"
#include "python/py_ref.h"

namespace bolt::observe {

/// Where a suspended run stands: the code and instruction of each of its frames. Two runs at one place have
/// the same number of roots.
struct Place {
  std::vector<uintptr_t> key;
  std::vector<PyRef> code;  ///< keeps the addresses in `key` from being used again
  bool operator<(const Place& other) const { return key < other.key; }
  bool operator==(const Place& other) const { return key == other.key; }
};
Place place_of(const interp::Frame& innermost);

/// Everything that code running on from there can reach: the exception being handled, then, oldest frame
/// first, each frame's function, the instance it initialises, the generator it is the body of with the
/// exception handled there, its kept locals, its value stack. Null: unbound, or never read again. Borrowed.
std::vector<PyObject*> roots_of(const interp::Frame& innermost);
/// Names for messages, in the same order.
std::vector<std::string> root_names_of(const interp::Frame& innermost);

/// The innermost frame of the user's own code, which may be that of a caller; where all is torch's,
/// `innermost`.
const interp::Frame* users_frame(const interp::Frame* innermost);

/// The frames of a run, oldest first.
template <class AnyFrame>
std::vector<AnyFrame*> frames_of(AnyFrame& innermost) {
  std::vector<AnyFrame*> frames = {&innermost};
  while (frames.back()->return_to != interp::ReturnTo::entry && frames.back()->back)
    frames.push_back(frames.back()->back);
  std::reverse(frames.begin(), frames.end());
  return frames;
}
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

/// Does the run hold the frame's own object (sys._getframe())? That tells of all locals.
bool is_watched(const interp::Frame& frame, const interp::Frame& innermost);
/// Every slot of frame.locals(): what is in it that code running on from there can still read, or whose end
/// it would notice; else null. Borrowed.
std::vector<PyObject*> kept_locals_of(const interp::Frame& frame, const interp::Frame& innermost);
/// As kept_locals_of, of any slots: those that are `live` can be read.
std::vector<PyObject*> kept_of(PyObject* const* locals, size_t count, const std::vector<bool>& live);

/// Does the call that this instruction makes run to its end at once? There is no place inside where a region
/// could begin or end.
bool runs_whole(const interp::Frame& frame);
/// Does a call of this callable run whole, as it shows something that need not be looked into?
bool shows_whole(PyObject* callable);

/// A `for` loop that runs whole, as one instruction: the one that asks for the next item.
class WholeLoop {
 public:
  /// Its first instruction is in progress; nothing where that begins no such loop.
  void begin(const interp::Frame& frame);
  /// Is `frame` a part of the one that was begun?
  bool holds(const interp::Frame& frame);

 private:
  const interp::Frame* frame_ = nullptr;
  interp::ForLoop loop_{};
};

/// Runs so many instructions plainly and then stops, or where a recorder has met an operator and sets
/// `watch_instructions` (Recorder::wakes). Calls lead where they would in a recording: to the same places.
class PlainSteps final : public interp::Semantics {
 public:
  static constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kToAnOperator = kToTheEnd - 1;

  interp::CallStart start_call(interp::Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                               PyObject* kwnames) override;
  PyObject* call_native(interp::Frame& frame, PyObject* callable, PyObject* const* args, size_t nargs,
                        PyObject* kwnames) override;
  /// `last`: where the last of them is to be found.
  explicit PlainSteps(int64_t instructions, const Place* last = nullptr) : left_(instructions), last_(last) {
    watch_instructions = left_ < kToAnOperator;
  }
  void enter_frame(interp::Frame& frame) override {
    if (!bottom_) bottom_ = &frame;
  }
  bool before_instruction(interp::Frame& frame) override {
    if (loop_.holds(frame)) return true;
    if (left_ == 1 && last_) elsewhere = !(place_of(frame) == *last_);
    // Native code that calls back into Python runs to its end first, and so do transforms.
    if (left_ == kToAnOperator)
      return interp::bottom_of(frame) != bottom_ || guard::transform_levels() > levels_;
    if (left_ > 0) loop_.begin(frame);
    return left_-- > 0 || interp::bottom_of(frame) != bottom_;
  }
  bool elsewhere = false;  ///< it was not there

 private:
  const interp::Frame* bottom_ = nullptr;
  int64_t left_;
  const Place* last_;
  const size_t levels_ = guard::transform_levels();
  WholeLoop loop_;
};

/// Runs plainly for as long as a mode of torch runs Python for every operator.
class StepThroughModes final : public interp::Semantics {
 public:
  StepThroughModes() { watch_instructions = true; }
  void enter_frame(interp::Frame& frame) override {
    if (!bottom_) bottom_ = &frame;
  }
  bool before_instruction(interp::Frame& frame) override {
    return guard::modes_run_python() || interp::bottom_of(frame) != bottom_;
  }

 private:
  const interp::Frame* bottom_ = nullptr;
};

}  // namespace bolt::observe

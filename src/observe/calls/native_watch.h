// observe/calls/native_watch.h
// A native call -> the Python code that CPython ran behind our back meanwhile, since no recording saw that.
#pragma once

#include <functional>
#include <string>

#include "interp/frame.h"
#include "observe/observation.h"
#include "python/compat.h"

namespace bolt::observe {

/// While it lives: notes such code. They nest: the outermost lasts as long as the recording and is for what
/// instructions lead to (elements that are compared, keys that are hashed); a native call has its own, and
/// may lead to code of ours (a generator's body, a callback) that makes native calls in turn.
class NativeWatch {
 public:
  /// Of a native call that the innermost frame makes.
  explicit NativeWatch(RecorderHooks& hooks);
  /// Called at the instruction in question, with the name of the function. `in_operator`: it is part of an
  /// operator (torch.library.custom_op), whose recording it does not matter to.
  using Met = std::function<void(const std::string& function, bool in_operator)>;
  /// Of a recording.
  NativeWatch(RecorderHooks& hooks, Met met);
  ~NativeWatch();
  NativeWatch(const NativeWatch&) = delete;
  /// CPython is about to run `code`.
  void entered(PyCodeObject* code);
  /// A garbage collection begins or is over: operators within it are not the program's.
  void collects(bool begins);
  /// The first such function, or "".
  const std::string& seen() const { return seen_; }

  /// While it lives nothing is noted: what runs is the business of somebody else.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;

   private:
    NativeWatch* paused_;
  };

 private:
  void install();

  RecorderHooks& hooks_;
  Met met_;
  NativeWatch* outer_;
  const interp::Frame* frame_;
  bool outer_collecting_ = false, was_paused_ = false;
  std::string seen_;
};

}  // namespace bolt::observe

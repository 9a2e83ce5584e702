// interp/observe/native_watch.h
// Python code that CPython runs behind our back, while a native call lasts: it is nothing a recording saw.
#pragma once

#include <string>

#include "interp/compat.h"
#include "interp/frame.h"
#include "interp/observe/observation.h"

namespace bolt::observe {

/// While it lives: notes such code. They nest: a native call may lead to code of ours (a generator's body, a
/// callback) that makes native calls of its own.
class NativeWatch {
 public:
  explicit NativeWatch(const RecorderHooks& hooks);
  ~NativeWatch();
  NativeWatch(const NativeWatch&) = delete;
  /// CPython is about to run `code`.
  void entered(PyCodeObject* code);
  /// The first such function, or "".
  const std::string& seen() const { return seen_; }

 private:
  const RecorderHooks& hooks_;
  _PyFrameEvalFunction previous_;
  NativeWatch* outer_;
  const interp::Frame* frame_;
  std::string seen_;
};

}  // namespace bolt::observe

// interp/call_site.cpp
#include "interp/call_site.h"

#include "interp/frame.h"

namespace bolt::interp {

namespace {

/// Frames on the thread that are never run.
class Callers {
 public:
  explicit Callers(const std::vector<Standing>& callers) : thread_(thread_state()) {
    for (const auto& [function, pc] : callers)
      if (!add(reinterpret_cast<PyFunctionObject*>(function), pc)) return;
    complete_ = true;
  }
  ~Callers() {
    for (; !frames_.empty(); frames_.pop_back()) {
      current_raw(thread_) = frames_.back()->raw->previous;
      discard_frame(frames_.back());
    }
  }
  Callers(const Callers&) = delete;
  bool complete() const { return complete_; }

 private:
  bool add(PyFunctionObject* function, int pc) {
    const Code* prepared = prepare(reinterpret_cast<PyCodeObject*>(function->func_code));
    Frame* frame = prepared ? new_frame(function, prepared) : nullptr;
    if (!frame) return false;
    frame->set_pc(pc);
    frame->raw->previous = current_raw(thread_);
    current_raw(thread_) = frame->raw;
    frames_.push_back(frame);
    return true;
  }

  PyThreadState* thread_;
  std::vector<Frame*> frames_;
  bool complete_ = false;
};

}  // namespace

PyObject* call_from(const std::vector<Standing>& callers, PyObject* callable, PyObject* const* args,
                    size_t nargs, PyObject* kwnames) {
  const Callers on_the_stack(callers);
  return on_the_stack.complete() ? PyObject_Vectorcall(callable, args, nargs, kwnames) : nullptr;
}

}  // namespace bolt::interp

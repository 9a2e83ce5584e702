// observe/ends/learned_ends.cpp
#include "observe/ends/learned_ends.h"

#include <iterator>
#include <vector>

#include "guard/tensors.h"
#include "observe/ends/frames.h"

namespace bolt::observe {

using interp::Frame;

const Ends::End* Ends::at(const Frame& frame) const {
  if (all_.empty()) return nullptr;
  const auto at = all_.find({reinterpret_cast<PyObject*>(frame.code()), frame.pc()});
  return at == all_.end() ? nullptr : &at->second;
}

void Ends::add(PyObject* code, int pc, const Reason& reason, bool whole) {
  if (all_.try_emplace(Key{code, pc}, End{PyRef::share(code), reason, whole, count_}).second) ++count_;
}

void Ends::forget_since(uint64_t count) {
  std::vector<End> gone;  // what they held goes when the table is as it should be
  for (auto at = all_.begin(); at != all_.end();) {
    const bool later = at->second.number >= count;
    if (later) gone.push_back(std::move(at->second));
    at = later ? all_.erase(at) : std::next(at);
  }
}

Ends*& Ends::current() {
  thread_local Ends* current = nullptr;
  return current;
}

namespace {

/// The special methods of tensors that are Python (__pow__, __floordiv__) are torch's: regions end before
/// them.
bool is_operator_of_tensors(const Frame& frame) {
  const int op = frame.instr().op;
  if (op != interp::op::BINARY_OP && op != interp::op::COMPARE_OP) return false;
  return guard::is_tensor(frame.peek(1)) || guard::is_tensor(frame.peek(2));
}

}  // namespace

bool runs_whole(const Frame& frame) {
  if (frame.pc() < 0) return false;  // the call that begins a run is no instruction of it
  if (is_operator_of_tensors(frame)) return true;
  const Ends* ends = Ends::current();
  const Ends::End* found = ends ? ends->at(frame) : nullptr;
  return found && found->whole;
}

void WholeLoop::begin(const Frame& frame) {
  if (frame.instr().op != interp::op::FOR_ITER || !runs_whole(frame)) return;
  const std::vector<interp::ForLoop> loops = interp::loops_around(*frame.prepared, frame.pc());
  if (loops.empty() || loops[0].first != frame.pc()) return;
  frame_ = &frame, loop_ = loops[0];
}

bool WholeLoop::holds(const Frame& frame) {
  for (const Frame* at = frame_ ? &frame : nullptr; at; at = at->back)
    if (at == frame_ && loop_.first <= at->pc() && at->pc() <= loop_.last) return true;
  frame_ = nullptr;
  return false;
}

}  // namespace bolt::observe

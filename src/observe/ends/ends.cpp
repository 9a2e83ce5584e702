// observe/ends/ends.cpp: see ends.h.
#include "observe/ends/ends.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "guard/tensors.h"
#include "guard/transforms.h"
#include "observe/ends/frames.h"
#include "observe/recording.h"

namespace bolt::observe {

const Ends::End* Ends::at(const Frame& frame) const {
  if (all_.empty()) return nullptr;
  const auto at = all_.find({reinterpret_cast<PyObject*>(frame.code()), frame.pc()});
  return at == all_.end() ? nullptr : &at->second;
}

void Ends::add(PyObject* code, int pc, const std::string& why, bool whole) {
  if (all_.try_emplace(Key{code, pc}, End{PyRef::share(code), why, whole, count_}).second) ++count_;
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

namespace {

/// torch.func's own Python, which calls the user's between beginning a transform and ending it.
bool is_of_transforms(const Frame& frame) {
  const char* file = PyUnicode_AsUTF8(frame.code()->co_filename);
  return file && std::string_view(file).find("/torch/_functorch/") != std::string_view::npos;
}

}  // namespace

void Recording::not_past(PyObject* code, int pc, const std::string& why, bool whole) {
  ends.add(code, pc, why, whole);
  watch_instructions |= on;
  retry = true;
  world.distrust(why);
}

Recording::Instruction Recording::outermost(const Frame& frame) const {
  const Frame* at = &frame;
  while (interp::bottom_of(*at) != entry && interp::bottom_of(*at)->back) at = interp::bottom_of(*at)->back;
  bool whole = false;
  for (const Frame* inner = at; inner != entry && inner->back; inner = inner->back)
    if (is_of_transforms(*inner)) at = inner->back, whole = true;
  return {PyRef::share(reinterpret_cast<PyObject*>(at->code())), at->pc(), whole};
}

void Recording::not_past_here(const Frame& frame, const std::string& why) {
  const Instruction at = outermost(frame);
  not_past(at.code.get(), at.pc, why + ", in Python that runs within this instruction", at.whole);
}

void Recording::note_given(const Frame& frame, PyObject* object) {
  const bool common = guard::is_tensor(object) || PyBool_Check(object) ||
                      (PyLong_CheckExact(object) && !world.identity(object)) ||
                      PyUnicode_CheckExact(object) || object == Py_None || PyTuple_CheckExact(object) ||
                      PyList_CheckExact(object) || PyDict_CheckExact(object);
  if (common || interp::bottom_of(frame) != entry) return;
  given_.push_back({object, PyRef::share(reinterpret_cast<PyObject*>(frame.code())), frame.pc()});
}

void Recording::cannot_describe(const std::string& failure, PyObject* object, const Frame* below) {
  const auto made = std::find_if(given_.rbegin(), given_.rend(),
                                 [&](const Given& given) { return given.object == object; });
  if (made != given_.rend())
    not_past(made->code.get(), made->pc, failure);
  else if (transforms_at_ && object && guard::is_tensor(object) && guard::is_of_transform(object))
    not_past(transforms_at_->code.get(), transforms_at_->pc, failure, transforms_at_->whole);
  else if (below)
    not_past(reinterpret_cast<PyObject*>(below->code()), below->pc(), failure, true);
  else
    world.distrust(failure);
}

void Recording::left_changed(const std::string& why) {
  if (!std::exchange(ends.leaves_thread_changed, true)) retry = true;
  world.distrust(why);
}

void Recording::check_raised() {
  const char* name = hooks_.raised();
  if (!name) return;
  const std::string why = std::string(name) + " raised here, and the program went on";
  if (raising_)
    not_past(raising_->code.get(), raising_->pc, why, raising_->whole);
  else
    world.distrust(why);
}

}  // namespace bolt::observe

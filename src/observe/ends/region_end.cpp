// observe/ends/region_end.cpp
// The instruction in progress, what recordings before learned, what operators did -> does the region end, and
// before which instruction.
//
// Every reason comes here: a method that meets what must not be repeated calls end_here; the recorder's own
// reasons are asked for after each native call (end_if_wanted); ends_before looks, at each instruction, for
// those that can be told beforehand. Where it is too late, since the instruction to end before is over or
// cannot be suspended, this recording is not kept, and the next one ends there (not_past).
#include <algorithm>
#include <optional>
#include <string_view>

#include "guard/tensors.h"
#include "guard/transforms.h"
#include "observe/ends/frames.h"
#include "observe/lifetimes/noticed.h"
#include "observe/rebuild/rebuild.h"
#include "observe/recording.h"
#include "observe/writes/give_back.h"

namespace bolt::observe {
namespace {

std::vector<StackLine> stack_of(const Frame* frame) {
  std::vector<StackLine> lines;
  for (; frame; frame = frame->return_to == interp::ReturnTo::entry ? nullptr : frame->back)
    lines.push_back(line_of(frame->code(), frame->pc()));
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace

// Once the region has ended, the instruction that ended it is run, then the run stands still.
bool Recording::before_instruction(Frame& frame) {
  if (!on) return interp::bottom_of(frame) != entry || loop_.holds(frame);
  if (escaped_at_ || world.goodbyes.ends_are_noticed() || !ends.empty()) [[unlikely]]
    if (ends_before(frame)) return true;
  world.begin_instruction();
  if (instructions >= watches_from) [[unlikely]]
    end_if_idle(frame);
  if (!on) return true;
  watch_instructions = escaped_at_ || !ends.empty() || world.wants_watch();
  return true;
}

/// A loop over bytes or words, say, which costs several times as much while it is recorded.
void Recording::end_if_idle(Frame& frame) {
  watches_from = instructions + kIdle;
  const size_t before = std::exchange(operators_, hooks_.recorded());
  const bool may_end = interp::bottom_of(frame) == entry && guard::transform_levels() == outer_levels_;
  if (before != operators_ || !may_end || breaks_are_errors()) return;
  idle = true;
  end_here(frame, Why::idle);
}

/// Does the region end before the instruction that is about to begin? Then it has.
bool Recording::ends_before(Frame& frame) {
  if (escaped_at_) end_where_escaped(&frame);
  if (!on) return true;
  const bool raised = frame.instr().op == interp::op::PUSH_EXC_INFO;  // whatever it was that did
  PyObject* gone = may_have_let_go_ || raised ? world.goodbyes.last_held() : nullptr;
  may_have_let_go_ = !world.goodbyes.ends_are_noticed() || may_let_go(frame);
  if (gone) end_here(frame, {Why::last_reference, Py_TYPE(gone)->tp_name});
  if (!on) return true;
  // What raises below C code may be handled there, or is the end of an instruction that other calls get past.
  const bool raises_below =
      frame.instr().op == interp::op::RAISE_VARARGS && interp::bottom_of(frame) != entry;
  const Ends::End* end = raises_below ? nullptr : ends.at(frame);
  if (!end) return false;
  world.begin_instruction();
  end_here(frame, Reason(end->reason));
  loop_.begin(frame);
  return true;
}

void Recording::end_if_wanted(Frame& frame, bool changes) {
  if (!on) return;
  watch_instructions |= world.wants_watch();  // operators may have found sizes out
  if (!transforms_at_ && guard::transform_levels() > outer_levels_) transforms_at_ = outermost(frame);
  const bool news = hooks_.has_news();
  if (!news && !world.open_numbers.lent_open()) return;
  if (news && !raising_ && hooks_.raised()) raising_ = outermost(frame);
  if (changes && escaped_at_) return;
  const std::optional<Why> asked = world.open_numbers.asked_open();
  const Reason* why = news ? hooks_.wants_end() : nullptr;
  if (why || asked) end_here(frame, why ? *why : Reason(*asked), true);
}

void Recording::end_where_escaped(Frame* frame) {
  const std::optional<Instruction> at = std::exchange(escaped_at_, std::nullopt);
  const Reason* wanted = at ? hooks_.wants_end() : nullptr;
  if (!wanted) return;
  const Reason why = *wanted;
  if (frame) end_here(*frame, why, true);
  not_past(at->code.get(), at->pc, why, at->whole);
}

void Recording::end_here(Frame& frame, const Reason& why, bool drop) {
  if (!on) return;
  const RaisedAside raised;
  if (!drop && !hooks_.wants_end()) mark(frame);
  hooks_.end_region(true);
  if (auto& facts = world.notes->facts; facts.size() > world.noted_before) facts.resize(world.noted_before);
  world.undo_instruction();
  on = notes_attributes = false;
  recorded = instructions;
  breaks.push_back({why, stack_of(&frame), breaks_are_errors()});
  check_awaited();
  check_raised();
  Rebuilder rebuilder(world, hooks_);
  if (interp::bottom_of(frame) != entry || guard::transform_levels() > outer_levels_) {
    not_past_here(frame, why);
  } else {
    rebuilder.frames(frames_of(std::as_const(frame)));
    rebuilder.effects();
    if (const auto& failure = rebuilder.failure)
      cannot_describe(failure->where_it_ends(why), rebuilder.failed_on, rebuilder.failed_below);
  }
  after = guard::ThreadState::now();
  if (!after.can_follow(before)) left_changed(Reason(Why::thread_left_changed).where_it_ends(why));
  if (!flags.are_as_before()) left_changed(Why::flag_left_changed);
  autocast_levels += guard::ThreadState::autocast_levels();
  broken_off = std::make_unique<Recipe>(std::move(rebuilder.recipe));
  broken_off_at = place_of(frame);
  world.keep_apart();
  // The instruction may put one of its operands where it stays.
  PyObject* none = nullptr;
  give_numbers_back(world, &frame, entry, none);
  if (!breaks_are_errors()) world.let_go();
  resumable &= world.unsound.empty();
  watch_instructions = resumable;
}

void Recording::met_unseen(const std::string& function, bool in_operator) {
  if (!on || !interp::current_frame()) return;
  if (!in_operator)
    not_past_here(*interp::current_frame(), {Why::runs_python, function});
  else if (!world.calls.empty())  // it may print, too
    not_past_here(*interp::current_frame(), {Why::unseen_in_operator, function});
}

namespace {

/// torch.func's own Python, which calls the user's between beginning a transform and ending it.
bool is_of_transforms(const Frame& frame) {
  const char* file = PyUnicode_AsUTF8(frame.code()->co_filename);
  return file && std::string_view(file).find("/torch/_functorch/") != std::string_view::npos;
}

}  // namespace

void Recording::not_past(PyObject* code, int pc, const Reason& why, bool whole) {
  ends.add(code, pc, why, whole);
  watch_instructions |= on;
  retry = true;
  world.distrust(why.text());
}

Recording::Instruction Recording::outermost(const Frame& frame) const {
  const Frame* at = &frame;
  while (interp::bottom_of(*at) != entry && interp::bottom_of(*at)->back) at = interp::bottom_of(*at)->back;
  bool whole = false;
  for (const Frame* inner = at; inner != entry && inner->back; inner = inner->back)
    if (is_of_transforms(*inner)) at = inner->back, whole = true;
  return {PyRef::share(reinterpret_cast<PyObject*>(at->code())), at->pc(), whole};
}

void Recording::not_past_here(const Frame& frame, const Reason& why) {
  const Instruction at = outermost(frame);
  not_past(at.code.get(), at.pc, why.within_instruction(), at.whole);
}

void Recording::note_given(const Frame& frame, PyObject* object) {
  const bool common = guard::is_tensor(object) || PyBool_Check(object) ||
                      (PyLong_CheckExact(object) && !world.identity(object)) ||
                      PyUnicode_CheckExact(object) || object == Py_None || PyTuple_CheckExact(object) ||
                      PyList_CheckExact(object) || PyDict_CheckExact(object);
  if (common || interp::bottom_of(frame) != entry) return;
  given_.push_back({object, PyRef::share(reinterpret_cast<PyObject*>(frame.code())), frame.pc()});
}

void Recording::cannot_describe(const Reason& failure, PyObject* object, const Frame* below) {
  const auto made = std::find_if(given_.rbegin(), given_.rend(),
                                 [&](const Given& given) { return given.object == object; });
  if (made != given_.rend())
    not_past(made->code.get(), made->pc, failure);
  else if (transforms_at_ && object && guard::is_tensor(object) && guard::is_of_transform(object))
    not_past(transforms_at_->code.get(), transforms_at_->pc, failure, transforms_at_->whole);
  else if (below)
    not_past(reinterpret_cast<PyObject*>(below->code()), below->pc(), failure, true);
  else
    world.distrust(failure.text());
}

void Recording::left_changed(const Reason& why) {
  // Something looks at what is only made where the region ends: it had better end before that is asked for,
  // and not where the state is changed.
  const auto looks = [](const RegionEnd& each) { return each.reason.why == Why::late_read; };
  if (const auto at = std::ranges::find_if(breaks, looks); at != breaks.end() && !world.awaited.empty()) {
    const Awaited& last = world.awaited.back();
    return not_past(last.code.get(), last.pc, at->reason);
  }
  if (!std::exchange(ends.leaves_thread_changed, true)) retry = true;
  world.distrust(why.text());
}

void Recording::check_raised() {
  const char* name = hooks_.raised();
  if (!name) return;
  const Reason why(Why::operator_raised, name);
  if (raising_)
    not_past(raising_->code.get(), raising_->pc, why, raising_->whole);
  else
    world.distrust(why.text());
}

}  // namespace bolt::observe

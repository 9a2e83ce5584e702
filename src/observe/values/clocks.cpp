// observe/values/clocks.cpp
// time.time(), time.perf_counter() and the like -> numbers that each call of the region reads anew.
//
// A region's operators all run at once, so a clock shows the time of the program's work only where it is read
// before all of them (guard::Phase::early) or behind all of them (late). A step that is timed as a whole is
// one region; where a part is timed that has operators in front and behind, the recording finds that out at
// its end, and the next one ends before the clock is read.
#include "observe/values/clocks.h"

#include "observe/calls/special_calls.h"

namespace bolt::observe {
namespace {

PyObject* read_clock(const SpecialCall& c) {
  if (c.nargs || c.kwnames) return nullptr;
  World& world = c.recording.world;
  const size_t recorded = c.recording.hooks().recorded();
  const bool late = c.recording.hooks().worked_since(0);
  PyObject* value = PyObject_CallNoArgs(c.callable);
  if (!value) return nullptr;
  guard::NumberStep step{guard::NumberOp::call, 0, PyRef::share(c.callable)};
  step.phase = late ? guard::Phase::late : guard::Phase::early;
  if (late)
    world.clock_reads.push_back(
        {PyRef::share(reinterpret_cast<PyObject*>(c.frame.code())), c.frame.pc(), recorded});
  return world.computed(value, std::move(step));
}

}  // namespace

void check_clocks(Recording& recording) {
  for (const ClockRead& each : recording.world.clock_reads) {
    if (!recording.hooks().worked_since(each.recorded)) continue;
    auto* code = reinterpret_cast<PyCodeObject*>(each.code.get());
    recording.breaks.push_back({Why::clock_between, {line_of(code, each.pc)}, breaks_are_errors()});
    recording.not_past(each.code.get(), each.pc, Why::clock_between);
  }
}

void add_clock_calls(SpecialCalls& table) {
  for (const char* name : {"time", "perf_counter", "monotonic", "process_time", "thread_time"})
    for (const char* unit : {"", "_ns"}) table.emplace(std::string("time.") + name + unit, read_clock);
}

}  // namespace bolt::observe

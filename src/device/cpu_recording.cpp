// device/cpu_recording.cpp: see cpu_recording.h.
#include "device/cpu_recording.h"

#include <c10/util/ScopeExit.h>

namespace bolt::device {
namespace {

thread_local CpuRecording* under_way = nullptr;

}  // namespace

CpuRecording::CpuRecording(const std::function<void()>& work) {
  under_way = this;
  const auto end = c10::make_scope_exit([] { under_way = nullptr; });
  work();
}

bool CpuRecording::keep(const Launch& l, size_t numbers, size_t extents, Run run) {
  if (!under_way) return false;
  under_way->launches_.push_back(
      {l.pointers, {l.numbers, l.numbers + numbers}, {l.extents, l.extents + extents}, std::move(run)});
  return true;
}

void CpuRecording::launch(Queue&) {
  for (const Kept& kept : launches_) {
    std::vector<void*> pointers = kept.pointers;  // to which the device appends
    kept.run({pointers, kept.numbers.data(), kept.extents.data()});
  }
}

}  // namespace bolt::device

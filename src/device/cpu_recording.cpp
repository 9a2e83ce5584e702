// device/cpu_recording.cpp
#include "device/cpu_recording.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/ScopeExit.h>

#include "device/cpu_results.h"

namespace bolt::device {
namespace {

thread_local CpuRecording* under_way = nullptr;

}  // namespace

/// What is recorded is launched afterwards, as a captured graph is. Here it has run by then, so the launch is
/// to draw what was drawn.
CpuRecording::CpuRecording(const std::function<void()>& work) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  under_way = this;
  const auto end = c10::make_scope_exit([&] {
    under_way = nullptr;
    generator.set_state(before);
  });
  work();
}

bool CpuRecording::keep(const Launch& l, size_t numbers, size_t extents, Run run) {
  if (!under_way) return false;
  under_way->launches_.push_back(
      {l.pointers, {l.numbers, l.numbers + numbers}, {l.extents, l.extents + extents}, std::move(run), {}});
  return true;
}

bool CpuRecording::is_under_way() { return under_way != nullptr; }

void CpuRecording::keep_call(std::function<void()> again) {
  under_way->launches_.push_back({{}, {}, {}, {}, std::move(again)});
}

void CpuRecording::launch(Queue&) {
  for (const Kept& kept : launches_) {
    if (kept.call) {
      kept.call();
      continue;
    }
    std::vector<void*> pointers = kept.pointers;  // to which the device appends
    kept.run({pointers, kept.numbers.data(), kept.extents.data()});
  }
}

std::vector<at::Tensor> CpuResultMemory::make(const std::vector<Result>& results) {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    // A program that is recorded anew may ask for other results in the same place.
    const size_t bytes = new_cpu_result(r.sizes, r.strides, r.dtype).storage().nbytes() + 1;
    if (i == blocks_.size()) blocks_.emplace_back();
    if (!blocks_[i] || blocks_[i]->size < bytes) {
      blocks_[i] = std::make_shared<Block>();
      blocks_[i]->bytes = std::make_unique<char[]>(bytes);
      blocks_[i]->size = bytes;
    }
    if (blocks_[i]->used.exchange(true)) {
      out.push_back(new_cpu_result(r.sizes, r.strides, r.dtype));
      continue;
    }
    auto free = [block = blocks_[i]](void*) { block->used = false; };
    out.push_back(at::for_blob(blocks_[i]->bytes.get(), r.sizes)
                      .strides(r.strides)
                      .deleter(free)
                      .options(at::TensorOptions().dtype(r.dtype))
                      .make_tensor());
  }
  return out;
}

}  // namespace bolt::device

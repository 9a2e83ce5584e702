// device/cpu_recording.h
// Launches of kernels on the processor -> a list of them, to be run again.
//
// Nothing is gained by it. It is there so that what is built on recordings (run/recordings.h) is tested where
// there is no GPU: a repeated launch gets the addresses and numbers of the recorded one, as in a CUDA graph.
// Switched on by TORCHBOLT_CPU_RECORDINGS. Calls of ATen divide programs, or are repeated as well.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"

namespace bolt::device {

class CpuRecording final : public RecordedLaunches {
 public:
  explicit CpuRecording(const std::function<void()>& work);
  void launch(Queue& queue) override;

  using Run = std::function<void(const Launch&)>;
  /// False where nothing is recorded on this thread. `numbers`, `extents`: how many the launch has.
  static bool keep(const Launch& launch, size_t numbers, size_t extents, Run run);
  static bool is_under_way();
  /// `again` does what another call did, in the same places.
  static void keep_call(std::function<void()> again);

 private:
  struct Kept {
    std::vector<void*> pointers;
    std::vector<int64_t> numbers, extents;
    Run run;
    std::function<void()> call;  ///< none: it is a launch
  };
  std::vector<Kept> launches_;
};

/// Blocks that are given out again when their tensors are gone; a device's allocator in small.
class CpuResultMemory final : public ResultMemory {
 public:
  std::vector<at::Tensor> make(const std::vector<Result>& results) override;

 private:
  struct Block {
    std::unique_ptr<char[]> bytes;
    size_t size = 0;
    std::atomic<bool> used{false};
  };
  std::vector<std::shared_ptr<Block>> blocks_;  ///< by result
};

}  // namespace bolt::device

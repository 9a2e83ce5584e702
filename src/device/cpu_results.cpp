// device/cpu_results.cpp
#include "device/cpu_results.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <cstdlib>
#include <deque>
#include <iterator>
#include <mutex>

#include "support/knobs.h"

namespace bolt::device {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kLarge = kHugePage;

struct Block {
  void* data;
  size_t bytes;
};

/// Blocks nobody uses, the one let go last at the end.
class Pool {
 public:
  static Pool& get() {
    static auto* pool = new Pool;  // results may die after every static
    return *pool;
  }

  Block* take(size_t bytes) {
    {
      std::lock_guard lock(mutex_);
      for (auto it = free_.rbegin(); it != free_.rend(); ++it) {
        if ((*it)->bytes != bytes) continue;
        Block* found = *it;
        free_.erase(std::next(it).base());
        kept_ -= bytes;
        return found;
      }
    }
    void* data = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&data, kHugePage, bytes) == 0,
                     "torchbolt: cannot allocate ", bytes, " bytes for a result");
    madvise(data, bytes, MADV_HUGEPAGE);  // a wish: no matter whether it is heard
    return new Block{data, bytes};
  }

  void give(Block* block) {
    std::lock_guard lock(mutex_);
    free_.push_back(block);
    kept_ += block->bytes;
    trim(limit_);
  }

  void give_back() {
    std::lock_guard lock(mutex_);
    trim(0);
  }

 private:
  void trim(size_t limit) {
    while (kept_ > limit) {
      Block* oldest = free_.front();
      free_.pop_front();
      kept_ -= oldest->bytes;
      std::free(oldest->data);
      delete oldest;
    }
  }

  std::mutex mutex_;
  std::deque<Block*> free_;
  size_t kept_ = 0;
  const size_t limit_ = static_cast<size_t>(knob_int("TORCHBOLT_RESULT_CACHE_MB")) << 20;
};

class ResultAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLarge) return c10::GetCPUAllocator()->allocate(bytes);
    Block* block = Pool::get().take(bytes);
    c10::profiledCPUMemoryReporter().New(block->data, bytes);  // a profiler sees it as any other memory
    return {block->data, block, [](void* b) { let_go(static_cast<Block*>(b)); }, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void let_go(Block* block) {
    c10::profiledCPUMemoryReporter().Delete(block->data);
    Pool::get().give(block);
  }
};

}  // namespace

void give_back_cpu_results() { Pool::get().give_back(); }

at::Tensor new_cpu_result(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  static auto* allocator = new ResultAllocator;
  return at::detail::empty_strided_generic(sizes, strides, allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
}

}  // namespace bolt::device

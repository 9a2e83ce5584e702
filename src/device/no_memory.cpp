// device/no_memory.cpp
#include "device/no_memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>

namespace bolt::device {
namespace {

std::atomic<int64_t> allocations = 0, failing = -1;

/// Torch's own, until there shall be no more. Says what torch's says.
class RunsOut final : public c10::Allocator {
 public:
  explicit RunsOut(c10::Allocator* torchs) : torchs_(torchs) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes > 0 && allocations++ >= failing && failing >= 0)
      TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes,
                  " bytes (a test wants it so)");
    return torchs_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return torchs_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator* const torchs_;
};

}  // namespace

PyObject* fail_allocation(PyObject*, PyObject* number) {
  const int64_t place = PyLong_AsLongLong(number);
  if (place == -1 && PyErr_Occurred()) return nullptr;
  static const bool installed = [] {
    c10::SetCPUAllocator(new RunsOut(c10::GetCPUAllocator()), 255);
    return true;
  }();
  (void)installed;
  failing = place;
  return PyLong_FromLongLong(allocations.exchange(0));
}

}  // namespace bolt::device

// device/cuda_result_memory.cpp
#include "device/cuda_result_memory.h"

#include <utility>

#include "device/cuda_lease.h"
#include "device/cuda_results.h"
#include "python/gil.h"

namespace bolt::device {
namespace {

class CudaResultMemory final : public ResultMemory {
 public:
  explicit CudaResultMemory(c10::Device device) : device_(device) {}

  std::vector<at::Tensor> make(const std::vector<Result>& results) override {
    std::vector<at::Tensor> out;
    const Allocating here(*this);
    for (const Result& r : results) out.push_back(new_cuda_result(device_, r.sizes, r.strides, r.dtype));
    return out;
  }

  ~CudaResultMemory() override {
    if (!exists_ || !Py_IsInitialized()) return;
    const WithGil gil;
    try {
      release();
    } catch (const pybind11::error_already_set&) {  // at exit nobody minds
    }
  }

 private:
  /// What the thread allocates meanwhile comes from the pool. Each beginning counts as one more user of the
  /// pool, of which the first stays.
  class Allocating {
   public:
    explicit Allocating(CudaResultMemory& memory) : memory_(memory) {
      const WithGil gil;
      if (!memory_.exists_)
        memory_.pool_ = torchs_own("_graph_pool_handle")().cast<std::pair<int64_t, int64_t>>();
      torchs_own("_cuda_beginAllocateCurrentThreadToPool")(memory_.index(), memory_.pool_);
      is_first_ = !std::exchange(memory_.exists_, true);
    }
    ~Allocating() {
      const WithGil gil;
      try {
        torchs_own("_cuda_endAllocateToPool")(memory_.index(), memory_.pool_);
        if (!is_first_) memory_.release();
      } catch (const pybind11::error_already_set&) {  // what was begun can be ended
      }
    }
    Allocating(const Allocating&) = delete;

   private:
    CudaResultMemory& memory_;
    bool is_first_ = false;
  };

  int index() const { return static_cast<int>(device_.index()); }
  void release() { torchs_own("_cuda_releasePool")(index(), pool_); }

  const c10::Device device_;
  std::pair<int64_t, int64_t> pool_;
  bool exists_ = false;
};

}  // namespace

std::unique_ptr<ResultMemory> cuda_result_memory(c10::Device device) {
  return std::make_unique<CudaResultMemory>(device);
}

}  // namespace bolt::device

// device/cuda_drawing_graph.cpp
#include "device/cuda_drawing_graph.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>
#include <optional>

#include "device/cuda_lease.h"
#include "python/gil.h"

namespace bolt::device {

/// With the GIL held, but for its end.
struct CudaDrawingGraph::Graph {
  pybind11::object torchs = torchs_own("_CUDAGraph")();

  Graph() = default;
  Graph(const Graph&) = delete;
  ~Graph() {
    if (Py_IsInitialized()) {
      const WithGil gil;
      torchs = {};
    } else {
      torchs.release();  // the process ends
    }
  }
  void begin(const CudaRoom::PoolId& pool) { torchs.attr("capture_begin")(pool, "relaxed"); }
  void end() { torchs.attr("capture_end")(); }

  static std::shared_ptr<Graph> of_next_to_nothing(const CudaRoom::PoolId& pool, c10::Device device) {
    auto graph = std::make_shared<Graph>();
    graph->begin(pool);
    const at::Tensor next_to_nothing = at::zeros({1}, at::TensorOptions().device(device));
    graph->end();
    return graph;
  }
};

/// Seed and offset of a device's default generator, in memory that graphs read.
class CudaDrawingGraph::Numbers {
 public:
  static Numbers& of(c10::Device device) {
    static std::mutex mutex;
    static auto* known = new std::map<int, Numbers>;
    const std::lock_guard lock(mutex);
    return (*known)[device.index()];
  }

  /// The memory goes with the last graph that the generator knows, whatever still reads it. So it knows one
  /// for ever. With the GIL held.
  void keep(c10::Device device) {
    if (holder_) return;
    const auto generators = pybind11::module_::import("torch.cuda").attr("default_generators");
    const pybind11::object holder = torchs_own("_CUDAGraph")();
    holder.attr("register_generator_state")(generators[pybind11::int_(static_cast<int>(device.index()))]);
    holder_ = pybind11::object(holder).release();
  }

  /// From here on, and while it lives, this stream alone writes and reads them.
  class InUse {
   public:
    InUse(Numbers& numbers, driver::CUstream stream) : numbers_(numbers), stream_(stream) {
      // Torch lets go of the GIL while it launches, and wants it back: nobody waits here who has it.
      std::optional<WithoutGil> others_go_on;
      if (PyGILState_Check()) others_go_on.emplace();
      lock_ = std::unique_lock(numbers_.mutex_);
      if (numbers_.event_ && numbers_.last_ != stream_)
        driver::check(driver::get().cuStreamWaitEvent(stream_, numbers_.event_, 0), "cuStreamWaitEvent");
    }
    ~InUse() {
      const auto& driver = driver::get();
      numbers_.last_ = stream_;
      if (!numbers_.event_) driver.cuEventCreate(&numbers_.event_, driver::kEventDisableTiming);
      driver.cuEventRecord(numbers_.event_, stream_);
    }
    InUse(const InUse&) = delete;

   private:
    Numbers& numbers_;
    const driver::CUstream stream_;
    std::unique_lock<std::mutex> lock_;
  };

 private:
  pybind11::handle holder_;
  std::mutex mutex_;
  driver::CUevent event_ = nullptr;
  driver::CUstream last_ = nullptr;
};

CudaDrawingGraph::CudaDrawingGraph(CudaRoom& room, driver::CUcontext context,
                                   const std::function<void()>& work)
    : numbers_(Numbers::of(room.device_)), lease_(std::make_unique<CudaRoom::Lease>(room)) {
  lease_->end_allocating();  // torch allocates from the pool while it captures
  const CudaRoom::OnStream apart(room.stream_);
  const driver::ContextGuard current(context);
  // To begin capturing writes the numbers.
  const Numbers::InUse in_use(numbers_, static_cast<driver::CUstream>(room.stream_.native_handle()));
  const WithGil gil;
  numbers_.keep(room.device_);
  // Beside the device's pool torch has one of the processor's memory, for its own graphs alone, and raises
  // where one begins in a pool that others have ended in. So there is always one.
  if (!room.keeper_) room.keeper_ = Graph::of_next_to_nothing(lease_->pool(), room.device_);
  graph_ = std::make_unique<Graph>();
  capture(room, work);
}

/// Where a capture fails, torch leaves the generator as it is while one is under way, and the pool in use.
/// One that succeeds ends that for the generator.
void CudaDrawingGraph::capture(CudaRoom& room, const std::function<void()>& work) {
  graph_->begin(lease_->pool());
  try {
    {
      const WithoutGil as_elsewhere;
      work();
    }
    graph_->end();
  } catch (...) {
    const auto device = static_cast<int>(room.device_.index());
    try {
      graph_->end();
    } catch (const pybind11::error_already_set&) {
      torchs_own("_cuda_endAllocateToPool")(device, lease_->pool());
      torchs_own("_cuda_releasePool")(device, lease_->pool());
      Graph::of_next_to_nothing(lease_->pool(), room.device_);
    }
    throw;
  }
}

CudaDrawingGraph::~CudaDrawingGraph() = default;

void CudaDrawingGraph::launch(driver::CUstream stream) {
  const Numbers::InUse in_use(numbers_, stream);
  const WithGil gil;
  graph_->torchs.attr("replay")();
}

}  // namespace bolt::device

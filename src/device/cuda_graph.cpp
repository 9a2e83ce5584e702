// device/cuda_graph.cpp: see cuda_graph.h.
#include "device/cuda_graph.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <memory>

namespace bolt::device {
namespace {

constexpr int kNotCapturing = 0;

pybind11::object torchs(const char* name) { return pybind11::module_::import("torch._C").attr(name); }

/// Another stream is the device's current one.
class OnStream {
 public:
  explicit OnStream(c10::Stream stream) : before_(guard_.exchangeStream(stream)) {}
  ~OnStream() { guard_.exchangeStream(before_); }
  OnStream(const OnStream&) = delete;

 private:
  const c10::impl::VirtualGuardImpl guard_{c10::kCUDA};
  const c10::Stream before_;
};

/// From here to `end`, or to its own end, launches on the stream are noted and not run.
class Capture {
 public:
  explicit Capture(driver::CUstream stream) : stream_(stream) {
    driver::check(driver::get().cuStreamBeginCapture_v2(stream_, driver::kCaptureRelaxed),
                  "cuStreamBeginCapture");
  }
  ~Capture() {
    if (!ended_) driver::get().cuStreamEndCapture(stream_, &graph_);
    if (graph_) driver::get().cuGraphDestroy(graph_);
  }
  Capture(const Capture&) = delete;

  driver::CUgraph end() {
    ended_ = true;
    driver::check(driver::get().cuStreamEndCapture(stream_, &graph_), "cuStreamEndCapture");
    return graph_;
  }

 private:
  const driver::CUstream stream_;
  driver::CUgraph graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

/// Torch keeps the pool's memory for it as long as somebody has a lease. A pool whose last lease has ended
/// cannot be used again.
class CudaRoom::Lease {
 public:
  /// From here to `end_allocating`, memory that the thread allocates comes from the pool.
  explicit Lease(CudaRoom& room) : room_(room) {
    const pybind11::gil_scoped_acquire gil;
    forget_workspaces();
    // Between asking and counting nothing may give the GIL away.
    const pybind11::object handle = torchs("_graph_pool_handle"),
                           begin = torchs("_cuda_beginAllocateCurrentThreadToPool");
    if (room_.leases_ == 0) room_.pool_ = handle().cast<PoolId>();
    pool_ = room_.pool_;
    begin(device(), pool_);
    ++room_.leases_;
  }
  void end_allocating() {
    const pybind11::gil_scoped_acquire gil;
    allocating_ = false;
    forget_workspaces();
    torchs("_cuda_endAllocateToPool")(device(), pool_);
  }
  ~Lease() {
    if (!Py_IsInitialized()) return;  // the process ends
    const pybind11::gil_scoped_acquire gil;
    try {
      if (allocating_) end_allocating();
      const pybind11::object release = torchs("_cuda_releasePool");
      --room_.leases_;
      release(device(), pool_);
    } catch (const pybind11::error_already_set&) {  // what was begun can be ended; at exit nobody minds
    }
  }
  Lease(const Lease&) = delete;

 private:
  /// cuBLAS keeps a workspace for each stream. A graph's must lie in the pool, and stay nobody else's.
  static void forget_workspaces() { torchs("_cuda_clearCublasWorkspaces")(); }
  int device() const { return static_cast<int>(room_.device_.index()); }

  CudaRoom& room_;
  PoolId pool_;
  bool allocating_ = true;
};

bool cuda_is_recording(driver::CUstream stream) {
  int status = kNotCapturing;
  return driver::get().cuStreamIsCapturing(stream, &status) != driver::kSuccess || status != kNotCapturing;
}

CudaRoom& CudaRoom::of(c10::Device device, c10::StreamId order) {
  static std::mutex mutex;
  static auto* known = new std::map<std::pair<int, c10::StreamId>, std::unique_ptr<CudaRoom>>;
  const std::lock_guard lock(mutex);
  auto& room = (*known)[{device.index(), order}];
  if (!room) room.reset(new CudaRoom(device, order));
  return *room;
}

CudaRoom::CudaRoom(c10::Device device, c10::StreamId order)
    : device_(device),
      order_(order),
      stream_(c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(device, false)) {}

std::unique_lock<std::mutex> CudaRoom::turn() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  if (!PyGILState_Check()) {
    lock.lock();
    return lock;
  }
  const pybind11::gil_scoped_release others_go_on;
  lock.lock();
  return lock;
}

CudaGraph::CudaGraph(CudaRoom& room, driver::CUcontext context, const std::function<void()>& work)
    : context_(context), lease_(std::make_unique<CudaRoom::Lease>(room)) {
  {
    const OnStream apart(room.stream_);
    const driver::ContextGuard current(context_);
    Capture capture(static_cast<driver::CUstream>(room.stream_.native_handle()));
    work();
    driver::check(driver::get().cuGraphInstantiateWithFlags(&graph_, capture.end(), 0), "cuGraphInstantiate");
  }
  lease_->end_allocating();
}

CudaGraph::~CudaGraph() {
  driver::CUcontext ignored = nullptr;
  if (driver::get().cuCtxPushCurrent_v2(context_) != driver::kSuccess) return;  // the process ends
  driver::get().cuGraphExecDestroy(graph_);
  driver::get().cuCtxPopCurrent_v2(&ignored);
}

void CudaGraph::launch(driver::CUstream stream) const {
  driver::check(driver::get().cuGraphLaunch(graph_, stream), "cuGraphLaunch");
}

}  // namespace bolt::device

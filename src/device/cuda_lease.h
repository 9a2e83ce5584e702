// device/cuda_lease.h
// What the two kinds of graphs have in common (cuda_graph.cpp, cuda_drawing_graph.cpp): the room's memory, by
// way of the functions that torch exports to Python, and its stream.
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include "device/cuda_graph.h"
#include "python/gil.h"

namespace bolt::device {

/// With the GIL held.
inline pybind11::object torchs_own(const char* name) {
  return pybind11::module_::import("torch._C").attr(name);
}

/// Another stream, and its device, are the current ones.
class CudaRoom::OnStream {
 public:
  explicit OnStream(c10::Stream stream)
      : device_(guard_.exchangeDevice(stream.device())), stream_(guard_.exchangeStream(stream)) {}
  ~OnStream() {
    guard_.exchangeStream(stream_);
    guard_.setDevice(device_);
  }
  OnStream(const OnStream&) = delete;

 private:
  const c10::impl::VirtualGuardImpl guard_{c10::kCUDA};
  const c10::Device device_;
  const c10::Stream stream_;
};

/// Torch keeps the pool's memory for it as long as somebody has a lease. A pool whose last lease has ended
/// cannot be used again.
class CudaRoom::Lease {
 public:
  /// From here to `end_allocating`, memory that the thread allocates comes from the pool.
  explicit Lease(CudaRoom& room) : room_(room) {
    const WithGil gil;
    forget_workspaces();
    // Between asking and counting nothing may give the GIL away.
    const pybind11::object handle = torchs_own("_graph_pool_handle"),
                           begin = torchs_own("_cuda_beginAllocateCurrentThreadToPool");
    if (room_.leases_ == 0) room_.pool_ = handle().cast<PoolId>();
    pool_ = room_.pool_;
    begin(device(), pool_);
    ++room_.leases_;
  }
  void end_allocating() {
    const WithGil gil;
    allocating_ = false;
    forget_workspaces();
    torchs_own("_cuda_endAllocateToPool")(device(), pool_);
  }
  ~Lease() {
    if (!Py_IsInitialized()) return;  // the process ends
    const WithGil gil;
    try {
      if (allocating_) end_allocating();
      const pybind11::object release = torchs_own("_cuda_releasePool");
      if (--room_.leases_ == 0) room_.keeper_.reset();
      release(device(), pool_);
    } catch (const pybind11::error_already_set&) {  // what was begun can be ended; at exit nobody minds
    }
  }
  Lease(const Lease&) = delete;
  const PoolId& pool() const { return pool_; }

 private:
  /// cuBLAS keeps a workspace for each thread and stream. A graph's must lie in the pool: nobody else uses
  /// the room's stream, so it does, and given back it serves the room's other graphs. But torch gives all
  /// workspaces back or none, and another thread may have taken its own for a product that it is about to
  /// launch. Then that memory would be somebody else's when the product runs. So only where this thread is
  /// alone.
  static void forget_workspaces() {
    const pybind11::object threads = pybind11::module_::import("sys").attr("_current_frames")();
    if (pybind11::len(threads) == 1) torchs_own("_cuda_clearCublasWorkspaces")();
  }
  int device() const { return static_cast<int>(room_.device_.index()); }

  CudaRoom& room_;
  PoolId pool_;
  bool allocating_ = true;
};

}  // namespace bolt::device

// device/cuda_graph.h
// Work on the current stream -> a CUDA graph that repeats it.
//
// The work is captured on a stream of the room's own, since torch's default stream cannot be captured; a
// graph runs on whichever stream it is given to. Memory that is allocated meanwhile comes from a private pool
// of torch's allocator, which nobody else is given: its addresses stay the graph's. Torch has no C++
// interface for that which could be used without linking to it, so the functions that it exports to Python
// are called.
//
// A room is one stream's pool. Graphs of one stream run one after another and leave nothing in their memory
// that is needed afterwards, so all of them share it. Graphs of different streams would not, and have rooms
// of their own. When the last graph of a room goes, the pool's memory goes back to torch's allocator.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <utility>

#include "device/driver/driver.h"
#include "device/driver/turns.h"

namespace bolt::device {

/// By somebody's capture, on this stream.
bool cuda_is_recording(driver::CUstream stream);

class CudaRoom {
 public:
  /// Of a stream that is the device's current one, by its id.
  static CudaRoom& of(c10::Device device, c10::StreamId order);
  CudaRoom(const CudaRoom&) = delete;

  c10::StreamId order() const { return order_; }
  c10::Device device() const { return device_; }
  /// Whoever waits for it does not hold the GIL meanwhile: who has it may need that for capturing.
  Turn turn();
  /// What `work` allocates is the pool's, as long as somebody keeps what is returned. The turn is the
  /// caller's.
  std::shared_ptr<void> reserve(const std::function<void()>& work);

 private:
  friend class CudaGraph;
  friend class CudaDrawingGraph;
  using PoolId = std::pair<int64_t, int64_t>;
  class Lease;
  class OnStream;
  CudaRoom(c10::Device device, c10::StreamId order);

  const c10::Device device_;
  const c10::StreamId order_;
  c10::Stream stream_;
  Turns turns_;
  // With the GIL held:
  PoolId pool_;
  int leases_ = 0;                ///< of the pool; none: the next gets another pool
  std::shared_ptr<void> keeper_;  ///< of the pool, while there are leases (cuda_drawing_graph.cpp)
};

/// A recording that can be launched.
class AnyCudaGraph {
 public:
  virtual ~AnyCudaGraph();
  /// To the stream, which is the device's current one. The context is current.
  virtual void launch(driver::CUstream stream) = 0;
};

class CudaGraph final : public AnyCudaGraph {
 public:
  /// Runs `work`, where nothing of it reaches the device. Throws what that throws, and Error(Internal) where
  /// it did what cannot be captured. The context is that of the room's device.
  CudaGraph(CudaRoom& room, driver::CUcontext context, const std::function<void()>& work);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;

  void launch(driver::CUstream stream) override;

 private:
  const driver::CUcontext context_;
  std::unique_ptr<CudaRoom::Lease> lease_;
  driver::CUgraphExec graph_ = nullptr;
};

}  // namespace bolt::device

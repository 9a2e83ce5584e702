// device/cuda_drawing_graph.h
// Work on the current stream that draws random numbers -> a CUDA graph that draws new ones at each launch.
//
// Kernels of torch's that are captured read the seed and the offset of their numbers out of memory, which is
// written before each launch; the offset then goes on as it would have without a graph. So the numbers are
// those of plain launches, and manual_seed() reproduces them. That is a service of torch's own graphs, which
// alone may tell the generator that its numbers are being captured: so these graphs are torch's, over the
// same pool (cuda_graph.h).
//
// The memory is one for all graphs of a device. Launches in different streams therefore wait for each other.
#pragma once

#include "device/cuda_graph.h"

namespace bolt::device {

class CudaDrawingGraph final : public AnyCudaGraph {
 public:
  /// As CudaGraph.
  CudaDrawingGraph(CudaRoom& room, driver::CUcontext context, const std::function<void()>& work);
  ~CudaDrawingGraph() override;
  CudaDrawingGraph(const CudaDrawingGraph&) = delete;

  void launch(driver::CUstream stream) override;

 private:
  struct Graph;  // torch's
  class Numbers;
  void capture(CudaRoom& room, const std::function<void()>& work);

  Numbers& numbers_;
  std::unique_ptr<CudaRoom::Lease> lease_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace bolt::device

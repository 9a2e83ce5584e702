// device/cuda_graph.cpp
#include "device/cuda_graph.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "device/cuda_lease.h"
#include "python/gil.h"

namespace bolt::device {
namespace {

constexpr int kNotCapturing = 0;

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

/// Torch's own streams are a few, handed out in turns: what somebody else launched on such a one meanwhile
/// would be recorded, and not run. To torch a stream of others is known by its address.
static c10::Stream own_stream(c10::Device device) {
  constexpr unsigned kNotWaitingForTheDefaultOne = 1;
  const driver::ContextGuard current(driver::primary_context(device.index()));
  driver::CUstream stream = nullptr;
  driver::check(driver::get().cuStreamCreate(&stream, kNotWaitingForTheDefaultOne), "cuStreamCreate");
  return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<c10::StreamId>(stream));
}

CudaRoom::CudaRoom(c10::Device device, c10::StreamId order)
    : device_(device), order_(order), stream_(own_stream(device)) {}

Turn CudaRoom::turn() {
  const Turns::Answer answer = turns_.ask();
  bool ours = answer == Turns::Answer::yours;
  if (answer == Turns::Answer::not_now) {
    std::optional<WithoutGil> others_go_on;
    if (PyGILState_Check()) others_go_on.emplace();
    ours = turns_.wait();
  }
  return ours ? Turn(&turns_) : Turn();
}

std::shared_ptr<void> CudaRoom::reserve(const std::function<void()>& work) {
  auto lease = std::make_shared<Lease>(*this);
  {
    const OnStream apart(stream_);
    work();
  }
  lease->end_allocating();
  return lease;
}

AnyCudaGraph::~AnyCudaGraph() = default;

CudaGraph::CudaGraph(CudaRoom& room, driver::CUcontext context, const std::function<void()>& work)
    : context_(context), lease_(std::make_unique<CudaRoom::Lease>(room)) {
  {
    const CudaRoom::OnStream apart(room.stream_);
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

void CudaGraph::launch(driver::CUstream stream) {
  driver::check(driver::get().cuGraphLaunch(graph_, stream), "cuGraphLaunch");
}

}  // namespace bolt::device

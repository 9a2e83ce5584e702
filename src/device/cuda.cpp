// device/cuda.cpp
// Kernels are launched on the caller's current stream, as eager's are, and nothing waits for them. Memory
// comes from torch's allocator, which orders its reuse by that stream.
//
// A kernel that meets an index out of range stays inside its memory and sets a word in pinned host memory.
// Nobody waits for that either: the next call on the device that finds it set raises, as eager's kernels are
// heard of at the next operation that waits for the device.
#include "device/cuda.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>

#include "codegen/cuda/compile_plan.h"
#include "codegen/cuda/lists.h"
#include "device/cuda_drawing_graph.h"
#include "device/cuda_graph.h"
#include "device/cuda_result_memory.h"
#include "device/cuda_results.h"
#include "device/driver/launch.h"
#include "device/driver/matrix_library.h"
#include "loops/library_layout.h"
#include "support/error.h"
#include "support/parallel.h"

namespace bolt::device {
namespace {

using codegen::cuda::KernelLaunches;
using driver::LoadedKernel;

driver::CUdeviceptr address(const c10::DataPtr& memory) {
  return reinterpret_cast<driver::CUdeviceptr>(memory.get());
}

class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(c10::Device device)
      : device_(device), context_(driver::primary_context(device.index())) {}

  void follow() override {
    const c10::Stream current = guard_.getStream(device_);
    id_ = current.id();
    stream_ = static_cast<driver::CUstream>(current.native_handle());
  }
  void begin() override {
    follow();
    TORCH_CHECK_INDEX(!report_ || !report_->take(),
                      "torchbolt: an index was out of range in a call before this one, on ", device_);
  }

  int64_t order() const override { return id_; }
  void finish() override {
    const driver::ContextGuard current(context_);
    driver::check(driver::get().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }
  void keep(const at::Tensor& t) override { t.record_stream(guard_.getStream(device_)); }

  bool is_being_recorded() const override { return cuda_is_recording(stream_); }
  Turn turn() override { return room().turn(); }
  void copy(void* to, const void* from, int64_t bytes) override {
    const driver::ContextGuard current(context_);
    driver::check(driver::get().cuMemcpyDtoDAsync_v2(reinterpret_cast<driver::CUdeviceptr>(to),
                                                     reinterpret_cast<driver::CUdeviceptr>(from),
                                                     static_cast<size_t>(bytes), stream_),
                  "cuMemcpyDtoDAsync");
  }
  /// Where recordings of the current order have their memory.
  CudaRoom& room() {
    if (!room_ || room_->order() != id_) room_ = &CudaRoom::of(device_, id_);
    return *room_;
  }

  c10::Device device() const { return device_; }
  driver::CUcontext context() const { return context_; }
  /// Null: there is none.
  driver::MatrixLibrary* matrices() {
    if (!matrices_) matrices_ = driver::MatrixLibrary::of(device_.index(), context_);
    return *matrices_;
  }
  driver::CUstream stream() const { return stream_; }
  driver::CUdeviceptr report() {
    if (!report_) report_ = std::make_unique<driver::ReportWord>();
    return report_->address();
  }

 private:
  const c10::Device device_;
  const driver::CUcontext context_;
  const c10::impl::VirtualGuardImpl guard_{c10::kCUDA};
  c10::StreamId id_ = 0;
  driver::CUstream stream_ = nullptr;
  std::unique_ptr<driver::ReportWord> report_;
  CudaRoom* room_ = nullptr;
  std::optional<driver::MatrixLibrary*> matrices_;  // once somebody asked
};

/// A multiplication that is ready to be launched, and where.
struct ReadyProduct {
  driver::MatrixLibrary* library;
  std::shared_ptr<driver::MatrixLibrary::Ready> ready;  // null: it is ATen's
  driver::MatrixLibrary::Places places;
};

/// What the user has asked of ATen's products that only ATen knows how to do is left to it: sums in one
/// order, sums in half precision, ways that ATen measures itself.
bool are_products_atens() {
  static const char* const tunes = std::getenv("PYTORCH_TUNABLEOP_ENABLED");
  const at::Context& settings = at::globalContext();
  return settings.deterministicAlgorithms() || settings.allowFP16AccumulationCuBLAS() ||
         (tunes && *tunes != '0');
}

ReadyProduct ready_product(CudaQueue& q, const driver::Multiplication& m,
                           const DeviceInterface::Places& given) {
  auto at = [](const void* place) { return reinterpret_cast<driver::CUdeviceptr>(place); };
  ReadyProduct product{
      q.matrices(), nullptr, {at(given.a), at(given.b), at(given.bias), at(given.added), at(given.result)}};
  if (!product.library || are_products_atens()) return product;
  driver::MatrixLibrary::Allowed allowed;
  if (m.operands == DType::F32) allowed.short_float32 = at::globalContext().allowTF32CuBLAS();
  product.ready = product.library->find(m, product.places, allowed);
  return product;
}

class CudaRecording final : public RecordedLaunches {
 public:
  CudaRecording(CudaQueue& queue, bool draws, const std::function<void()>& work) : context_(queue.context()) {
    if (draws)
      graph_ = std::make_unique<CudaDrawingGraph>(queue.room(), context_, work);
    else
      graph_ = std::make_unique<CudaGraph>(queue.room(), context_, work);
  }
  void launch(Queue& queue) override {
    const driver::ContextGuard current(context_);
    graph_->launch(static_cast<CudaQueue&>(queue).stream());
  }

 private:
  const driver::CUcontext context_;
  std::unique_ptr<AnyCudaGraph> graph_;
};

/// One kernel of a plan, in the contexts that it was launched in: its usual code, and code that asks nothing
/// of the memory and sizes it is given.
class CudaKernel {
 public:
  CudaKernel(loops::Kernel kernel, std::vector<char> numbers, codegen::cuda::CudaTarget target,
             KernelLaunches usual)
      : kernel_(std::move(kernel)),
        numbers_(std::move(numbers)),
        target_(std::move(target)),
        usual_(std::move(usual)) {}

  const LoadedKernel& loaded(driver::CUcontext context, bool usual) {
    std::lock_guard lock(mutex_);
    auto& known = loaded_[{context, usual}];
    if (!known) known = load(usual ? usual_ : general(), context);
    return *known;
  }

 private:
  /// Memory that torch keeps in reserve is none that the driver could load code into.
  static std::unique_ptr<LoadedKernel> load(const KernelLaunches& kernel, driver::CUcontext context) {
    try {
      return std::make_unique<LoadedKernel>(kernel, context);
    } catch (const driver::Unwell& full) {
      if (full.code != driver::kOutOfMemory) throw;
      c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
      return std::make_unique<LoadedKernel>(kernel, context);
    }
  }
  /// Few calls need it, so it is compiled when one does.
  const KernelLaunches& general() {
    if (general_) return *general_;
    codegen::cuda::CudaTarget target = target_;
    target.options.aligned = target.options.narrow = false;
    general_ =
        codegen::cuda::compile(std::vector<loops::Kernel>{kernel_}, target, {}, {numbers_}).kernels.front();
    BOLT_CHECK(general_->refused.empty(), kernel_.name, ": ", general_->refused);
    return *general_;
  }

  const loops::Kernel kernel_;
  const std::vector<char> numbers_;  // loops::numbers_of
  const codegen::cuda::CudaTarget target_;
  std::mutex mutex_;
  const KernelLaunches usual_;
  std::optional<KernelLaunches> general_;
  std::map<std::pair<driver::CUcontext, bool>, std::unique_ptr<LoadedKernel>> loaded_;
};

template <typename F>
void for_each_step(const loops::Plan& plan, const F& visit) {
  for (const auto* list : {&plan.steps, &plan.fold_steps})
    for (const loops::Step& s : *list)
      if (loops::kernel_of(s) >= 0 && s.device.kind == graph::DeviceKind::CUDA) visit(s);
}

class CudaCode final : public DeviceCode {
 public:
  CudaCode(const loops::Plan& plan, const codegen::cuda::CudaTarget& target) {
    std::vector<char> ours(plan.kernels.size());
    std::vector<int> all_schedules(plan.kernels.size()), schedules;
    std::vector<std::vector<char>> all_numbers(plan.kernels.size()), numbers;
    for_each_step(plan, [&](const loops::Step& s) {
      const auto kernel = static_cast<size_t>(loops::kernel_of(s));
      if (!ours[kernel]) all_numbers[kernel] = loops::numbers_of(plan, s);
      // A fold step that runs the same kernel names none.
      all_schedules[kernel] = std::max(all_schedules[kernel], s.schedule);
      ours[kernel] = 1;
    });
    std::vector<char> in_list(plan.kernels.size()), listed;
    for (const loops::Step& s : plan.steps)
      if (s.list >= 0) in_list[s.kernel] = 1;
    std::vector<loops::Kernel> kernels;
    for (size_t i = 0; i < ours.size(); ++i) {
      if (!ours[i]) continue;
      kernels.push_back(plan.kernels[i]);
      listed.push_back(in_list[i]);
      numbers.push_back(all_numbers[i]);
      schedules.push_back(all_schedules[i]);
    }
    auto compilation =
        std::make_shared<codegen::cuda::Compilation>(kernels, target, listed, numbers, schedules);
    facts_.resize(ours.size());
    kernels_.resize(ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      if (!ours[i]) continue;
      const KernelLaunches& k = compilation->kernels()[sources_.size()];
      if (!k.refused.empty()) throw_unsupported("no CUDA code for ", plan.kernels[i].name, ": ", k.refused);
      facts_[i].extents = k.extents();
      sources_.push_back({i, plan.kernels[i], all_numbers[i], target});
    }
    code_ = started([compilation] { return compilation->finish(); });
  }

  bool finish() override {
    if (!code_.valid()) return from_cache_;
    codegen::cuda::PlanLaunches code = code_.get();
    for (size_t i = 0; i < sources_.size(); ++i) {
      Source& s = sources_[i];
      kernels_[s.place] = std::make_unique<CudaKernel>(std::move(s.kernel), std::move(s.numbers),
                                                       std::move(s.target), std::move(code.kernels[i]));
    }
    sources_.clear();
    return from_cache_ = code.from_cache;
  }

  const KernelFacts& facts(int kernel) const override { return facts_[kernel]; }

  void launch(int kernel, Queue& queue, const Launch& l) const override {
    auto& q = static_cast<CudaQueue&>(queue);
    const auto* buffers = reinterpret_cast<const driver::CUdeviceptr*>(l.pointers.data());
    CudaKernel& code = *kernels_[kernel];
    const LoadedKernel& usual = code.loaded(q.context(), true);
    const bool fits = usual.fits(l.extents, buffers);
    const LoadedKernel& loaded = fits ? usual : code.loaded(q.context(), false);
    // The extents that the program has evaluated are the usual code's.
    const std::vector<int64_t> others = fits ? std::vector<int64_t>() : loaded.extents(l.numbers);
    const int64_t* extents = fits ? l.extents : others.data();
    const c10::DataPtr scratch = cuda_scratch(q.device(), loaded.scratch_bytes(extents));
    const driver::ContextGuard current(q.context());
    loaded.launch({extents, l.numbers, buffers, loaded.kernel().reports ? q.report() : 0, address(scratch)},
                  q.stream());
  }

  void launch_list(std::span<const OfList> list, Queue& queue) const override {
    auto& q = static_cast<CudaQueue&>(queue);
    std::vector<LoadedKernel::OfList> together;
    std::vector<int64_t> scratch;
    int64_t bytes = 0;
    for (const OfList& one : list) {
      const LoadedKernel& usual = kernels_[one.kernel]->loaded(q.context(), true);
      const auto* buffers = reinterpret_cast<const driver::CUdeviceptr*>(one.launch.pointers.data());
      if (!usual.is_listed() || !usual.fits(one.launch.extents, buffers)) {
        launch(one.kernel, queue, one.launch);
        continue;
      }
      together.push_back({&usual, {one.launch.extents, one.launch.numbers, buffers, 0, 0}});
      scratch.push_back(bytes);
      bytes += (usual.scratch_bytes(one.launch.extents) + 255) / 256 * 256;
    }
    const c10::DataPtr memory = cuda_scratch(q.device(), bytes);
    for (size_t i = 0; bytes > 0 && i < together.size(); ++i)
      together[i].given.scratch = address(memory) + static_cast<uint64_t>(scratch[i]);
    const driver::ContextGuard current(q.context());
    for (size_t first = 0, last; first < together.size(); first = last) {
      for (last = first + 1; last < together.size(); ++last)
        if (!together[last].kernel->may_join(*together[first].kernel)) break;
      LoadedKernel::launch_list({&together[first], last - first}, q.stream());
    }
  }

  void pack(int, Queue&, const void*, const std::vector<int64_t>&, void*) const override {
    throw Error(ErrorKind::Internal, "weights are packed for no CUDA kernel");
  }

 private:
  /// Of a kernel whose code is being compiled.
  struct Source {
    size_t place;
    loops::Kernel kernel;
    std::vector<char> numbers;
    codegen::cuda::CudaTarget target;
  };
  std::vector<Source> sources_;
  std::future<codegen::cuda::PlanLaunches> code_;  ///< until it is finished
  bool from_cache_ = true;
  std::vector<KernelFacts> facts_;
  std::vector<std::unique_ptr<CudaKernel>> kernels_;  // by kernel of the plan; null: another device's
};

class Cuda final : public DeviceInterface {
 public:
  explicit Cuda(std::shared_ptr<const codegen::cuda::Nvrtc> nvrtc) : nvrtc_(std::move(nvrtc)) {}

  std::string fingerprint(c10::Device device) const override {
    constexpr int kClock = 13, kProcessors = 16, kMemoryClock = 36, kMemoryWidth = 37, kCache = 38;
    std::string text = "cuda " + std::to_string(driver::capability(device.index()));
    for (int which : {kClock, kProcessors, kMemoryClock, kMemoryWidth, kCache})
      text += " " + std::to_string(driver::attribute(device.index(), which));
    const auto& hooks = at::detail::getCUDAHooks();
    return text + ", torch " TORCH_VERSION ", runtime " + std::to_string(hooks.versionCUDART()) + ", cuDNN " +
           std::to_string(hooks.hasCuDNN() ? hooks.versionCuDNN() : 0);
  }

  /// Contractions are cuBLAS's and cuDNN's.
  std::optional<int64_t> generates(const loops::PlannedContraction&) const override { return std::nullopt; }
  bool accepts_epilogue(const loops::PlannedContraction&, const loops::Kernel&) const override {
    return false;
  }

  /// Epilogues of cuBLASLt and cuDNN, where ATen takes them. Measured on an H100 and an H200: of all sizes
  /// less than a kernel behind the call, and no further from the exact result.
  bool ends_in(const graph::Node& call, graph::Op ending) const override {
    const graph::Type& type = call.out()->type;
    if (!is_half(type.dtype) || driver::capability(type.device.index) < 80) return false;
    return loops::ends_in_library(call, ending);
  }

  /// cuBLAS adds up halves in float32 and stores either.
  bool ends_in_float(const graph::Node&) const override { return true; }

  int schedules(const loops::Kernel&) const override { return std::size(codegen::cuda::kWider); }

  bool multiplies() const override { return true; }
  bool multiply(Queue& queue, const driver::Multiplication& m, const Places& given) const override {
    auto& q = static_cast<CudaQueue&>(queue);
    const driver::ContextGuard current(q.context());
    const ReadyProduct product = ready_product(q, m, given);
    if (!product.ready) return false;
    const c10::DataPtr scratch =
        cuda_scratch(q.device(), product.library->scratch_bytes(*product.ready, m.way));
    return product.library->launch(*product.ready, m.way, product.places, address(scratch), q.stream());
  }
  int ways_to_multiply(Queue& queue, const driver::Multiplication& m, const Places& given) const override {
    auto& q = static_cast<CudaQueue&>(queue);
    const driver::ContextGuard current(q.context());
    const ReadyProduct product = ready_product(q, m, given);
    return product.ready ? product.library->ways(*product.ready) : 0;
  }

  /// Where the smallest of them keeps the device busy for less than some rounds, the last of which is partly
  /// idle. Measured on an H100: of few rows three products at once take two fifths of the time, and beyond
  /// this there is as much to lose as to win.
  bool merges(const std::vector<const graph::Node*>& products) const override {
    constexpr int kProcessors = 16;
    constexpr int64_t kTile = 128, kRounds = 3;
    const int64_t enough =
        kRounds * driver::attribute(products.front()->out()->type.device.index, kProcessors);
    return std::ranges::any_of(products, [&](const graph::Node* n) {
      const graph::Type& result = n->out()->type;
      const Sym columns = result.sizes.back(), elements = result.numel();
      if (!columns.is_const() || !elements.is_const() || elements.value() == 0) return false;
      const int64_t rows = elements.value() / columns.value();
      return (rows + kTile - 1) / kTile * ((columns.value() + kTile - 1) / kTile) < enough;
    });
  }

  std::string list_key(const loops::Kernel& kernel, const std::vector<char>& numbers,
                       graph::Device device) const override {
    codegen::cuda::ScheduleOptions options;
    options.capability = driver::capability(device.index);
    return codegen::cuda::list_key(kernel, options, numbers);
  }

  std::unique_ptr<DeviceCode> compile(const loops::Plan& plan) const override {
    codegen::cuda::CudaTarget target;
    target.nvrtc = nvrtc_;
    target.capability = 0;
    for_each_step(plan, [&](const loops::Step& s) {
      const int here = driver::capability(s.device.index);
      if (target.capability && target.capability != here)
        throw_unsupported("one region on CUDA devices of different kinds");
      target.capability = here;
    });
    target.options.capability = target.capability;
    return std::make_unique<CudaCode>(plan, target);
  }

  std::unique_ptr<Queue> queue(c10::Device device) const override {
    return std::make_unique<CudaQueue>(device);
  }
  at::Tensor arena(c10::Device device, int64_t bytes) const override {
    return new_cuda_result(device, {bytes}, {1}, c10::kByte);
  }
  bool works_behind_host() const override { return true; }
  bool keeps_arenas() const override { return false; }
  at::Tensor result(c10::Device device, at::IntArrayRef sizes, at::IntArrayRef strides,
                    c10::ScalarType dtype) const override {
    return new_cuda_result(device, sizes, strides, dtype);
  }

  bool records() const override { return true; }
  std::unique_ptr<RecordedLaunches> record(Queue& queue, bool draws,
                                           const std::function<void()>& work) const override {
    return std::make_unique<CudaRecording>(static_cast<CudaQueue&>(queue), draws, work);
  }
  std::shared_ptr<void> reserve(Queue& queue, const std::function<void()>& work) const override {
    return static_cast<CudaQueue&>(queue).room().reserve(work);
  }
  std::unique_ptr<ResultMemory> result_memory(c10::Device device) const override {
    return cuda_result_memory(device);
  }

  /// Reading words of the contents would wait for the device.
  Sample sample(const c10::TensorImpl&) const override { return {}; }
  std::optional<uint64_t> hash(const c10::TensorImpl&) const override { return std::nullopt; }

 private:
  const std::shared_ptr<const codegen::cuda::Nvrtc> nvrtc_;
};

/// The folder of torch's __init__.py: beside lib/, in which its libraries lie.
std::string torch_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<void*>(&at::globalContext), &info) || !info.dli_fname) return "";
  return std::filesystem::path(info.dli_fname).parent_path().parent_path().string();
}

struct FoundCuda {
  const Cuda* device = nullptr;
  std::string missing;
};

FoundCuda look() {
  if (!at::globalContext().hasCUDA()) return {nullptr, "torch sees no CUDA device"};
  if (!driver::find()) return {nullptr, driver::missing()};
  std::string why;
  auto nvrtc = codegen::cuda::Nvrtc::open(codegen::cuda::nvrtc_folders(torch_folder()), &why);
  if (!nvrtc) return {nullptr, why};
  return {new Cuda(std::move(nvrtc)), ""};  // programs may run after every static
}

const FoundCuda& found() {
  static const FoundCuda once = look();
  return once;
}

}  // namespace

const DeviceInterface* cuda() { return found().device; }
std::string why_no_cuda() { return found().missing; }

}  // namespace bolt::device

// tests/cuda/gpu/gpu.h
// What run_on_gpu's ways of trying CUDA code share: cases as files give them, device memory, and kernels as
// they are compiled and launched.
//
// Kernels by themselves are tried in kernels.cpp, plans of graphs in graphs.cpp, those of random graphs in
// fuzz.cpp; times.cpp measures.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/compile_plan.h"
#include "device/driver/launch.h"
#include "loops/plan.h"
#include "tests/reference/graph.h"

namespace bolt::gpu {

using codegen::cuda::CudaTarget;
using codegen::cuda::KernelLaunches;
using graph::HostTensor;
namespace driver = device::driver;
using driver::check;
using driver::CUdeviceptr;

struct Case {
  std::string text;
  int64_t ints = 0;  // 0: the file does not say
  double tolerance = 0;
  bool rounds_as_eager = false;  // then every bit of halves is compared
  std::map<std::string, int64_t> sizes;
  int64_t other_sizes = 36;

  int64_t value(const std::string& symbol) const {
    const auto it = sizes.find(symbol);
    return it == sizes.end() ? other_sizes : it->second;
  }
};

/// One of those in which a kernel may be compiled and run.
struct Way {
  const char* name;
  bool anything = false;  // code that wants nothing of its memory and sizes
  bool listed = false;    // code for lists of launches
  int schedule = 0, capability = 0;
  bool against_end = true, backwards = false;  // emulated: memory, and the order of what runs at once
};
constexpr Way kUsual{"as usual"};
constexpr Way kAnything{.name = "with any memory", .anything = true};
constexpr Way kWays[] = {
    kUsual,
    {.name = "last first", .against_end = false, .backwards = true},
    kAnything,
    {.name = "in a list", .listed = true, .backwards = true},
    {.name = "in wide blocks", .schedule = 1, .against_end = false},
    {.name = "in narrow blocks", .schedule = 2, .backwards = true},
    {.name = "on an older device", .capability = 75},
};

/// What the emulator has beyond a driver.
struct Emulator {
  void (*as)(int against_end, int last_first) = nullptr;
};

Case read_case(const std::string& path);
/// Those of a text; none: it is a graph's.
std::vector<loops::Kernel> read_kernels(const std::string& text);

double random_real(std::mt19937& rng);
int64_t random_whole(std::mt19937& rng, DType t, int64_t ints);
double tolerance_of(DType t);

/// Device memory that goes with its owner.
class Memory {
 public:
  explicit Memory(size_t bytes) {
    check(driver::get().cuMemAlloc_v2(&at_, std::max<size_t>(bytes, 16)), "cuMemAlloc");
  }
  ~Memory() { driver::get().cuMemFree_v2(at_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  CUdeviceptr at() const { return at_; }

 private:
  CUdeviceptr at_ = 0;
};

class Device {
 public:
  explicit Device(const Emulator* emulator) : emulator_(emulator), context_(driver::primary_context(0)) {
    check(driver::get().cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    check(driver::get().cuStreamCreate(&stream_, driver::kStreamNonBlocking), "cuStreamCreate");
  }
  driver::CUcontext context() const { return context_; }
  driver::CUstream stream() const { return stream_; }
  /// Bytes around memory that may not be written, and of which a line of it has so many. The emulator sees
  /// to that itself.
  size_t zone() const { return emulator_ ? 0 : 256; }
  size_t line() const { return emulator_ ? 16 : 256; }
  void to(CUdeviceptr to, const void* from, size_t bytes) const {
    check(driver::get().cuMemcpyHtoDAsync_v2(to, from, bytes, stream_), "cuMemcpyHtoD");
  }
  void from(void* to, CUdeviceptr from, size_t bytes) const {
    check(driver::get().cuMemcpyDtoHAsync_v2(to, from, bytes, stream_), "cuMemcpyDtoH");
  }
  void wait() const { check(driver::get().cuStreamSynchronize(stream_), "cuStreamSynchronize"); }
  void go(const Way& way) const {
    if (emulator_) emulator_->as(way.against_end, way.backwards);
  }

 private:
  const Emulator* emulator_;
  driver::CUcontext context_;
  driver::CUstream stream_ = nullptr;
};

/// Ranges of host memory that are copied to the device, used there and copied back, with what stands on
/// either side of them. Ranges that overlap on the host do so on the device.
class Mirror {
 public:
  explicit Mirror(const Device& device) : device_(device) {}
  void add(char* begin, int64_t bytes) { ranges_.push_back({begin, begin + bytes, nullptr}); }

  void upload() {
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> merged;
    for (Range& r : ranges_) {
      if (!merged.empty() && r.begin < merged.back().end)
        merged.back().end = std::max(merged.back().end, r.end);
      else
        merged.push_back(std::move(r));
    }
    ranges_ = std::move(merged);
    for (Range& r : ranges_) {
      const size_t all = r.bytes() + lead(r) + 2 * device_.zone();
      r.memory = std::make_unique<Memory>(all);
      check(driver::get().cuMemsetD8Async(r.memory->at(), kRubbish, all, device_.stream()), "cuMemset");
      device_.to(at(r), r.begin, r.bytes());
    }
  }
  CUdeviceptr at(const char* host) const {
    for (const Range& r : ranges_)
      if (r.begin <= host && (host < r.end || host == r.begin))
        return at(r) + static_cast<size_t>(host - r.begin);
    throw std::runtime_error("an address that was not uploaded");
  }
  void download() {
    for (Range& r : ranges_) {
      device_.from(r.begin, at(r), r.bytes());
      const size_t zone = device_.zone();
      std::vector<unsigned char> zones(2 * zone + lead(r));
      device_.from(zones.data(), r.memory->at(), zone + lead(r));
      device_.from(zones.data() + zone + lead(r), at(r) + r.bytes(), zone);
      device_.wait();
      for (unsigned char z : zones)
        if (z != kRubbish) throw std::runtime_error("a kernel wrote beside its memory");
    }
  }

 private:
  static constexpr unsigned char kRubbish = 0x7b;
  struct Range {
    char *begin, *end;
    std::unique_ptr<Memory> memory;
    size_t bytes() const { return static_cast<size_t>(end - begin); }
  };
  /// Lies in a line of memory as on the host, so that alignment is the same.
  size_t lead(const Range& r) const { return reinterpret_cast<uintptr_t>(r.begin) % device_.line(); }
  CUdeviceptr at(const Range& r) const { return r.memory->at() + device_.zone() + lead(r); }

  const Device& device_;
  std::vector<Range> ranges_;
};

/// Kernels that are compiled together, and what of them are numbers of the processor.
struct Kernels {
  std::vector<loops::Kernel> list;
  std::vector<std::vector<char>> numbers;

  explicit Kernels(std::vector<loops::Kernel> kernels) : list(std::move(kernels)), numbers(list.size()) {}
  explicit Kernels(const loops::Plan& plan) : Kernels(plan.kernels) {
    for (const auto* steps : {&plan.steps, &plan.fold_steps})
      for (const loops::Step& s : *steps)
        if (s.kind == loops::StepKind::Kernel) numbers[static_cast<size_t>(s.kernel)] = numbers_of(plan, s);
  }
};

/// What a run of run_on_gpu has.
struct Tool {
  CudaTarget target;
  Emulator emulator;
  std::unique_ptr<Device> device;
  std::vector<int64_t> sizes = {36};
  bool at_first_size = true;
  std::vector<codegen::cuda::PlanLaunches> ready;  // what is compiled before
  bool ok = true;

  /// On a device of its own kind there is one way; code for any memory comes of what it is given.
  std::vector<Way> ways() const {
    if (!emulator.as) return {kUsual};
    if (!at_first_size) return {kUsual, kAnything};
    return {std::begin(kWays), std::end(kWays)};
  }
};

/// What came of a file or seed; nothing `wrong`: all is as it should be.
void say(Tool& tool, const std::string& file, const std::string& wrong);

codegen::cuda::PlanLaunches compile(const CudaTarget& target, const Kernels& kernels, const Way& way);

/// Kernels, and how they are to be run.
struct Wanted {
  Kernels kernels;
  std::vector<Way> ways;
};
/// Has all of them compiled by as few calls as there are targets: the emulator's compiler takes longer to
/// begin than for many kernels.
void make_ready(Tool& tool, const std::vector<Wanted>& all);

/// As the kernel's code wants its memory, and then with code that wants nothing of it.
void run_kernel(const Device& device, const Kernels& kernels, size_t number, const KernelLaunches& k,
                const CudaTarget& target, const std::vector<CUdeviceptr>& buffers,
                const std::vector<int64_t>& symbols);

/// What differs; "": nothing does.
std::string kernels_differ(const Tool& tool, const std::vector<loops::Kernel>& kernels, const Case& c);
loops::Plan plan_of(const Case& c, bool fuse);
std::string graph_differs(const Tool& tool, const Case& c, bool fuse);
/// Results of a plan whose kernels run on the device.
std::vector<HostTensor> run_plan(const Tool& tool, const loops::Plan& plan,
                                 const std::vector<HostTensor>& inputs, const Kernels& kernels,
                                 const codegen::cuda::PlanLaunches& code);
/// `range`: the first seed and how many, with a colon between them.
void fuzz_seeds(Tool& tool, const std::string& range);
void time_file(Tool& tool, const std::string& file);

}  // namespace bolt::gpu

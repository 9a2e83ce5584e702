// tests/cuda/run_on_gpu.cpp
// Graphs and kernels (*.ir) -> their kernels run on this machine's CUDA device, compared with the references.
//
//   run_on_gpu [--nvrtc=PATH] FILE...           results: one line a file, "ok" or what differs
//   run_on_gpu [--nvrtc=PATH] --compile FILE... only compiles, for sm_80 and sm_90: needs no device
//   run_on_gpu [--nvrtc=PATH] --time FILE...    device time of each kernel, beside a copy of as many bytes
//   run_on_gpu [--nvrtc=PATH] --fuzz=SEED:COUNT random graphs of tests/fuzz; with --compile only compiled
//
// A graph is planned with and without fusion, and every kernel of the plan runs on the device while the other
// steps run as in tests/loops (plan_runner.h). What a file says in its head (`; ints: 7`, `; s0 = 5`,
// `; tolerance: 1e-2`) means what it means there. A file of kernels is run on buffers of random numbers, all
// of which are compared. Times are of many launches queued one behind another.

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "codegen/cuda/compile_plan.h"
#include "device/driver/launch.h"
#include "graph/passes/passes.h"
#include "support/text.h"
#include "tests/fuzz/generator.h"
#include "tests/loops/plan_runner.h"

namespace bolt {
namespace {

using codegen::cuda::CudaTarget;
using codegen::cuda::KernelLaunches;
using graph::HostTensor;
namespace driver = device::driver;
using driver::check;
using driver::CUdeviceptr;

struct Case {
  std::string text;
  int64_t ints = 3;
  double tolerance = 0;
  std::map<std::string, int64_t> sizes;

  int64_t value(const std::string& symbol) const {
    const auto it = sizes.find(symbol);
    return it == sizes.end() ? 36 : it->second;
  }
};

Case read_case(const std::string& path) {
  Case c;
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  for (std::string line; std::getline(in, line);) {
    c.text += line + "\n";
    if (line.rfind("; ", 0) != 0) continue;
    const std::string rest = line.substr(2);
    const size_t eq = rest.find(" = ");
    if (rest.rfind("ints: ", 0) == 0) c.ints = std::stoll(rest.substr(6));
    if (rest.rfind("tolerance: ", 0) == 0) c.tolerance = std::stod(rest.substr(11));
    if (eq != rest.npos && rest.find(' ') == eq && std::isdigit(static_cast<unsigned char>(rest[eq + 3])))
      c.sizes[rest.substr(0, eq)] = std::stoll(rest.substr(eq + 3));
  }
  return c;
}

/// Multiples of 1/64 below 2 are exact in every floating type.
double random_real(std::mt19937& rng) { return static_cast<double>(rng() % 256) / 64 - 2; }

std::vector<HostTensor> random_inputs(const graph::Graph& g, const Case& c) {
  std::mt19937 rng(7);
  std::vector<HostTensor> out;
  for (const graph::Input& in : g.inputs) {
    std::vector<int64_t> sizes;
    for (Sym s : in.value->type.sizes)
      sizes.push_back(evaluate(s, [&](const SymNode& n) { return c.value(n.name); }));
    HostTensor t = graph::make_tensor(in.value->type.dtype, sizes);
    for (auto& cell : t.cells) {
      if (t.is_real())
        cell.real = random_real(rng);
      else
        cell.whole = static_cast<int64_t>(rng() % static_cast<uint64_t>(t.dtype == DType::Bool ? 2 : c.ints));
    }
    out.push_back(std::move(t));
  }
  return out;
}

double tolerance_of(DType t) {
  switch (t) {
    case DType::BF16: return 2e-2;
    case DType::F16: return 4e-3;
    case DType::F32: return 1e-4;
    case DType::F64: return 1e-10;
    default: return 0;
  }
}

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
  Device() : context_(driver::primary_context(0)) {
    check(driver::get().cuCtxSetCurrent(context_), "cuCtxSetCurrent");
    check(driver::get().cuStreamCreate(&stream_, driver::kStreamNonBlocking), "cuStreamCreate");
  }
  driver::CUcontext context() const { return context_; }
  driver::CUstream stream() const { return stream_; }
  void to(CUdeviceptr to, const void* from, size_t bytes) const {
    check(driver::get().cuMemcpyHtoDAsync_v2(to, from, bytes, stream_), "cuMemcpyHtoD");
  }
  void from(void* to, CUdeviceptr from, size_t bytes) const {
    check(driver::get().cuMemcpyDtoHAsync_v2(to, from, bytes, stream_), "cuMemcpyDtoH");
  }
  void wait() const { check(driver::get().cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
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
      r.memory = std::make_unique<Memory>(r.bytes() + r.lead() + 2 * kZone);
      check(driver::get().cuMemsetD8Async(r.memory->at(), kRubbish, r.bytes() + r.lead() + 2 * kZone,
                                          device_.stream()),
            "cuMemset");
      device_.to(r.at(), r.begin, r.bytes());
    }
  }
  CUdeviceptr at(const char* host) const {
    for (const Range& r : ranges_)
      if (r.begin <= host && (host < r.end || host == r.begin))
        return r.at() + static_cast<size_t>(host - r.begin);
    throw std::runtime_error("an address that was not uploaded");
  }
  void download() {
    for (Range& r : ranges_) {
      device_.from(r.begin, r.at(), r.bytes());
      std::vector<unsigned char> zones(2 * kZone);
      device_.from(zones.data(), r.at() - kZone, kZone);
      device_.from(zones.data() + kZone, r.at() + r.bytes(), kZone);
      device_.wait();
      for (unsigned char z : zones)
        if (z != kRubbish) throw std::runtime_error("a kernel wrote beside its memory");
    }
  }

 private:
  static constexpr size_t kZone = 256;
  static constexpr unsigned char kRubbish = 0x7b;
  struct Range {
    char *begin, *end;
    std::unique_ptr<Memory> memory;
    size_t bytes() const { return static_cast<size_t>(end - begin); }
    /// Lies in a line of memory as on the host, so that alignment is the same.
    size_t lead() const { return reinterpret_cast<uintptr_t>(begin) % kZone; }
    CUdeviceptr at() const { return memory->at() + kZone + lead(); }
  };
  const Device& device_;
  std::vector<Range> ranges_;
};

/// Launches once and waits.
void launch(const Device& device, const driver::LoadedKernel& loaded, const std::vector<CUdeviceptr>& buffers,
            const std::vector<int64_t>& symbols) {
  const std::vector<int64_t> extents = loaded.extents(symbols.data());
  const Memory scratch(static_cast<size_t>(loaded.scratch_bytes(extents.data())));
  driver::ReportWord report;
  loaded.launch({extents.data(), symbols.data(), buffers.data(), report.address(), scratch.at()},
                device.stream());
  device.wait();
  if (report.take()) throw std::runtime_error(loaded.kernel().name + " met an index out of range");
}

/// As the kernel's code wants its memory, and then with code that wants nothing of it.
void run_kernel(const Device& device, const loops::Kernel& kernel, const KernelLaunches& k, CudaTarget target,
                const std::vector<CUdeviceptr>& buffers, const std::vector<int64_t>& symbols) {
  if (!k.refused.empty()) throw std::runtime_error(k.name + " is refused: " + k.refused);
  const driver::LoadedKernel loaded(k, device.context());
  if (loaded.fits(loaded.extents(symbols.data()).data(), buffers.data()))
    return launch(device, loaded, buffers, symbols);
  target.options.aligned = target.options.narrow = false;
  const codegen::cuda::PlanLaunches code = codegen::cuda::compile(std::vector<loops::Kernel>{kernel}, target);
  launch(device, driver::LoadedKernel(code.kernels[0], device.context()), buffers, symbols);
}

class GpuRunner final : public loops::testing::PlanRunner {
 public:
  GpuRunner(const loops::Plan& plan, const std::vector<HostTensor>& inputs, const Device& device,
            const codegen::cuda::PlanLaunches& code, const CudaTarget& target)
      : PlanRunner(plan, inputs), device_(device), code_(code), target_(target) {}

 private:
  void kernel(const loops::Step& s) override {
    Mirror mirror(device_);
    bool nothing = true;
    for (int b : s.buffers) {
      const int64_t bytes = span(p_.buffers[static_cast<size_t>(b)]);
      if (bytes > 0) mirror.add(base_[static_cast<size_t>(b)], bytes);
      nothing = nothing && bytes == 0;
    }
    if (nothing) return;
    mirror.upload();
    std::vector<CUdeviceptr> at;
    for (int b : s.buffers)
      at.push_back(span(p_.buffers[static_cast<size_t>(b)]) > 0 ? mirror.at(base_[static_cast<size_t>(b)])
                                                                : 0);
    const KernelLaunches& k = code_.kernels[static_cast<size_t>(s.kernel)];
    const loops::Kernel& kernel = p_.kernels[static_cast<size_t>(s.kernel)];
    run_kernel(device_, kernel, k, target_, at, values(kernel.symbols));
    mirror.download();
  }
  int64_t span(const loops::PlanBuffer& b) const {
    const std::vector<int64_t> sizes = values(b.type.sizes), strides = values(b.type.strides);
    int64_t n = 1;
    for (size_t i = 0; i < sizes.size(); ++i) n += (sizes[i] - 1) * strides[i];
    for (int64_t size : sizes)
      if (size == 0) n = 0;
    return n * dtype_bytes(b.type.dtype);
  }

  const Device& device_;
  const codegen::cuda::PlanLaunches& code_;
  const CudaTarget& target_;
};

struct Tool {
  CudaTarget target;
  std::unique_ptr<Device> device;
  bool ok = true;
};

void say(Tool& tool, const std::string& file, const std::string& wrong) {
  std::printf("%s  %s\n", wrong.empty() ? "ok   " : "WRONG",
              (file + (wrong.empty() ? "" : ": " + wrong)).c_str());
  std::fflush(stdout);
  tool.ok = tool.ok && wrong.empty();
}

std::vector<loops::Kernel> read_kernels(const std::string& text) {
  std::vector<loops::Kernel> kernels;
  const std::string lines = "\n" + text;
  for (size_t at = lines.find("\nkernel @"); at != lines.npos; at = lines.find("\nkernel @", at)) {
    const size_t end = lines.find("\n}", at);
    kernels.push_back(loops::parse_kernel(std::string_view(lines).substr(at, end + 2 - at)));
    loops::verify(kernels.back());
    at = end;
  }
  return kernels;
}

std::string graph_differs(const Tool& tool, const Case& c, bool fuse) {
  loops::PlanOptions options;
  options.fuse = fuse;
  loops::Plan plan = loops::plan(graph::parse(c.text), options);
  const std::unique_ptr<graph::Graph> g = graph::parse(c.text);
  const std::vector<HostTensor> inputs = random_inputs(*g, c);
  const std::vector<HostTensor> expected = graph::run_reference(*g, inputs);
  const codegen::cuda::PlanLaunches code = codegen::cuda::compile(plan.kernels, tool.target);
  const std::vector<HostTensor> got = GpuRunner(plan, inputs, *tool.device, code, tool.target).run();
  for (size_t i = 0; i < got.size(); ++i) {
    const double d = graph::difference(got[i], expected[i]);
    if (!(d <= std::max(c.tolerance, tolerance_of(got[i].dtype))))
      return "output " + std::to_string(i) + (fuse ? "" : " unfused") + " differs by " + std::to_string(d);
  }
  return "";
}

/// Elements of each buffer of a file of kernels: enough for what is in tests/cuda.
constexpr int64_t kElements = 1 << 22;

std::string kernel_differs(const Tool& tool, const loops::Kernel& k,
                           const codegen::cuda::ScheduleOptions& options) {
  std::mt19937 rng(7);
  std::vector<HostTensor> host;
  std::vector<std::vector<char>> expected, got;
  for (const loops::Buffer& b : k.buffers) {
    HostTensor t = graph::make_tensor(b.dtype, {kElements});
    for (auto& cell : t.cells) {
      if (t.is_real())
        cell.real = random_real(rng);
      else
        cell.whole = static_cast<int64_t>(rng() % (b.dtype == DType::Bool ? 2 : 100));
    }
    expected.emplace_back(static_cast<size_t>(kElements * dtype_bytes(b.dtype)));
    graph::store_tensor(t, {1}, expected.back().data());
    host.push_back(std::move(t));
  }
  got = expected;
  const std::vector<int64_t> symbols(k.symbols.size(), 36);
  std::vector<void*> at;
  int64_t report = 0;
  for (auto& e : expected) at.push_back(e.data());
  at.push_back(&report);
  loops::run_reference(k, at.data(), symbols.data());

  Mirror mirror(*tool.device);
  for (auto& g : got) mirror.add(g.data(), static_cast<int64_t>(g.size()));
  mirror.upload();
  std::vector<CUdeviceptr> on_device;
  for (auto& g : got) on_device.push_back(mirror.at(g.data()));
  CudaTarget target = tool.target;
  target.options = options;
  const codegen::cuda::PlanLaunches code = codegen::cuda::compile(std::vector<loops::Kernel>{k}, target);
  run_kernel(*tool.device, k, code.kernels[0], target, on_device, symbols);
  mirror.download();
  for (size_t i = 0; i < got.size(); ++i) {
    const DType t = k.buffers[i].dtype;
    const double d = graph::difference(graph::load_tensor(t, {kElements}, {1}, got[i].data()),
                                       graph::load_tensor(t, {kElements}, {1}, expected[i].data()));
    if (!(d <= tolerance_of(t) * 10))
      return "@" + k.name + " b" + std::to_string(i) + " differs by " + std::to_string(d);
  }
  return "";
}

void run_file(Tool& tool, const std::string& file) {
  const Case c = read_case(file);
  std::string wrong;
  try {
    const std::vector<loops::Kernel> kernels = read_kernels(c.text);
    for (const loops::Kernel& k : kernels)
      for (bool anything : {true, false})
        if (wrong.empty()) wrong = kernel_differs(tool, k, {.aligned = anything, .narrow = anything});
    if (kernels.empty()) wrong = graph_differs(tool, c, true);
    if (kernels.empty() && wrong.empty()) wrong = graph_differs(tool, c, false);
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  say(tool, file, wrong);
}

void compile_file(Tool& tool, const std::string& file) {
  std::string wrong;
  try {
    const Case c = read_case(file);
    std::vector<loops::Kernel> kernels = read_kernels(c.text);
    for (bool fuse : {true, false}) {
      loops::PlanOptions options;
      options.fuse = fuse;
      if (c.text.find("\ngraph @") == c.text.npos && c.text.rfind("graph @", 0) != 0) break;
      for (loops::Kernel& k : loops::plan(graph::parse(c.text), options).kernels)
        kernels.push_back(std::move(k));
    }
    for (int capability : {80, 90, 0}) {
      CudaTarget target = tool.target;
      target.capability = capability ? capability : 90;
      if (!capability) target.options.aligned = target.options.narrow = false;
      if (!target.nvrtc->knows(target.capability)) continue;
      for (const KernelLaunches& k : codegen::cuda::compile(kernels, target).kernels)
        if (!k.refused.empty()) wrong = k.name + " is refused: " + k.refused;
    }
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  say(tool, file, wrong);
}

// ---- random graphs

std::string values_differ(const graph::Graph& g, const std::vector<HostTensor>& got,
                          const fuzz::SampleMap& expected) {
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const fuzz::Samples& s = expected.at(g.outputs[i].value);
    for (size_t at = 0; at < s.exact.cells.size(); ++at) {
      const graph::Cell a = got[i].cells[at], b = s.exact.cells[at];
      const bool real = s.exact.is_real();
      // What CUDA's functions may be off by beyond the CPU's.
      if (real ? std::fabs(a.real - b.real) <= 2 * fuzz::tolerance(s) : a.whole == b.whole) continue;
      std::ostringstream text;
      text << "output " << i << " element " << at << " is " << (real ? a.real : static_cast<double>(a.whole))
           << ", not " << (real ? b.real : static_cast<double>(b.whole)) << " +- " << 2 * fuzz::tolerance(s);
      return text.str();
    }
  }
  return "";
}

void fuzz_seed(Tool& tool, unsigned seed) {
  std::string wrong, text;
  try {
    const fuzz::Case c = fuzz::Generator(seed, fuzz::Limits{}).run();
    text = graph::print(*c.graph);
    std::unique_ptr<graph::Graph> g = graph::parse(text);
    graph::optimize(*g);
    loops::PlanOptions options;
    options.fuse = seed % 8 != 7;
    const loops::Plan plan = loops::plan(std::move(g), options);
    const codegen::cuda::PlanLaunches code = codegen::cuda::compile(plan.kernels, tool.target);
    if (!tool.device) return;
    const fuzz::SampleMap expected = fuzz::samples_of(*c.graph, c.inputs);
    wrong =
        values_differ(*c.graph, GpuRunner(plan, c.inputs, *tool.device, code, tool.target).run(), expected);
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  if (!wrong.empty()) say(tool, "seed " + std::to_string(seed), wrong + "\n" + text);
}

void fuzz_seeds(Tool& tool, const std::string& range) {
  const auto first = static_cast<unsigned>(std::stoul(range));
  const auto count = static_cast<unsigned>(std::stoul(range.substr(range.find(':') + 1)));
  for (unsigned seed = first; seed < first + count; ++seed) fuzz_seed(tool, seed);
  std::printf("%u random graphs from seed %u\n", count, first);
}

// ---- times

/// Milliseconds of one `launch`, of many queued behind one another.
template <typename F>
double time_of(const Device& device, F&& launch) {
  const driver::Functions& f = driver::get();
  driver::CUevent begin = nullptr, end = nullptr;
  check(f.cuEventCreate(&begin, 0), "cuEventCreate");
  check(f.cuEventCreate(&end, 0), "cuEventCreate");
  constexpr int kLaunches = 50;
  std::vector<double> all;
  for (int round = 0; round < 5; ++round) {
    check(f.cuEventRecord(begin, device.stream()), "cuEventRecord");
    for (int i = 0; i < kLaunches; ++i) launch();
    check(f.cuEventRecord(end, device.stream()), "cuEventRecord");
    device.wait();
    float ms = 0;
    check(f.cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
    all.push_back(static_cast<double>(ms) / kLaunches);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

/// Fills with finite numbers: every 16 bits are .5 in bf16 and as good in other types.
std::unique_ptr<Memory> filled(const Device& device, size_t bytes) {
  auto m = std::make_unique<Memory>(bytes + 16);
  check(driver::get().cuMemsetD32Async(m->at(), 0x3f003f00, bytes / 4, device.stream()), "cuMemset");
  return m;
}

void time_file(Tool& tool, const std::string& file) {
  const Case c = read_case(file);
  const loops::Plan plan = loops::plan(graph::parse(c.text), {});
  auto value = [&](Sym s) { return evaluate(s, [&](const SymNode& n) { return c.value(n.name); }); };
  const auto start = std::chrono::steady_clock::now();
  const codegen::cuda::PlanLaunches code = codegen::cuda::compile(plan.kernels, tool.target);
  const double compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  for (const loops::Step& s : plan.steps) {
    if (s.kind != loops::StepKind::Kernel) continue;
    const driver::LoadedKernel k(code.kernels[static_cast<size_t>(s.kernel)], tool.device->context());
    std::vector<std::unique_ptr<Memory>> memory;
    std::vector<CUdeviceptr> at;
    size_t bytes = 0;
    for (int b : s.buffers) {
      const graph::Type& t = plan.buffers[static_cast<size_t>(b)].type;
      const auto size = static_cast<size_t>(value(product(t.sizes)) * dtype_bytes(t.dtype));
      memory.push_back(filled(*tool.device, size));
      at.push_back(memory.back()->at());
      bytes += size;
    }
    std::vector<int64_t> symbols;
    for (Sym symbol : plan.kernels[static_cast<size_t>(s.kernel)].symbols) symbols.push_back(value(symbol));
    const std::vector<int64_t> extents = k.extents(symbols.data());
    const Memory scratch(static_cast<size_t>(k.scratch_bytes(extents.data())));
    driver::ReportWord report;
    const double ms = time_of(*tool.device, [&] {
      k.launch({extents.data(), symbols.data(), at.data(), report.address(), scratch.at()},
               tool.device->stream());
    });
    const auto from = filled(*tool.device, bytes / 2), to = filled(*tool.device, bytes / 2);
    const double copy = time_of(*tool.device, [&] {
      check(driver::get().cuMemcpyDtoDAsync_v2(to->at(), from->at(), bytes / 2, tool.device->stream()),
            "copy");
    });
    std::printf("%-40s %9.1f us  %5.2f TB/s  %4.2f of a copy  compile %4.0f ms ", k.kernel().name.c_str(),
                ms * 1e3, static_cast<double>(bytes) / ms * 1e-9, copy / ms, compile_ms);
    for (size_t i = 0; i < k.kernel().launches.size(); ++i)
      std::printf(" [%lld x %d threads, %d regs%s]", static_cast<long long>(extents[3 * i]),
                  k.kernel().launches[i].threads, k.attribute(i, driver::kRegisters),
                  k.attribute(i, driver::kLocalBytes) ? ", SPILLS" : "");
    std::printf("\n");
    std::fflush(stdout);
  }
}

int main_of(int argc, char** argv) {
  std::vector<std::string> paths, files;
  std::string mode = "run", seeds;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--nvrtc=", 0) == 0)
      paths.push_back(arg.substr(8));
    else if (arg.rfind("--fuzz=", 0) == 0)
      seeds = arg.substr(7);
    else if (arg == "--compile" || arg == "--time")
      mode = arg.substr(2);
    else
      files.push_back(arg);
  }
  Tool tool;
  std::string why;
  tool.target.nvrtc = codegen::cuda::Nvrtc::open(paths, &why);
  if (!tool.target.nvrtc) throw std::runtime_error(why);
  if (mode != "compile") {
    tool.device = std::make_unique<Device>();
    tool.target.capability = driver::capability(0);
    char name[256] = "";
    driver::get().cuDeviceGetName(name, sizeof name, 0);
    std::printf("%s, NVRTC %s\n", name, tool.target.nvrtc->version().c_str());
  }
  for (const std::string& file : files) {
    if (mode == "compile") compile_file(tool, file);
    if (mode == "run") run_file(tool, file);
    if (mode == "time") time_file(tool, file);
  }
  if (!seeds.empty()) fuzz_seeds(tool, seeds);
  return tool.ok ? 0 : 1;
}

}  // namespace
}  // namespace bolt

int main(int argc, char** argv) {
  try {
    return bolt::main_of(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "run_on_gpu: %s\n", e.what());
    return 2;
  }
}

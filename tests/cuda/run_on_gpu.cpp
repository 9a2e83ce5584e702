// tests/cuda/run_on_gpu.cpp
// Graphs and kernels (*.ir) -> their kernels run on this machine's CUDA device, compared with the references.
//
//   run_on_gpu [--nvrtc=PATH] FILE...           results: one line a file, "ok" or what differs
//   run_on_gpu [--nvrtc=PATH] --compile FILE... only compiles, for sm_80 and sm_90: needs no device
//   run_on_gpu [--nvrtc=PATH] --time FILE...    device time of each kernel, beside a copy of as many bytes
//   run_on_gpu [--nvrtc=PATH] --fuzz=SEED:COUNT random graphs of tests/fuzz; with --compile only compiled
//   run_on_gpu --emulate=PATH FILE...           results, on the processor (tests/cuda/emulate, which is at
//   PATH)
//   ... --sizes=7,36,1000                       of what has no size known, one run for each
//
// A graph is planned with and without fusion, and every kernel of the plan runs on the device while the other
// steps run as in tests/loops (plan_runner.h). What a file says in its head (`; ints: 7`, `; s0 = 5`,
// `; tolerance: 1e-2`) means what it means there. A file of kernels is run on buffers of random numbers, all
// of which are compared. Times are of many launches queued one behind another.
//
// The emulator runs each plan in several ways (kWays): all code that the product may choose, with memory that
// ends or begins where nobody may read, and what runs at once on a device one way round and the other.

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>

#include "codegen/cuda/compile_plan.h"
#include "codegen/cuda/lists.h"
#include "device/driver/launch.h"
#include "graph/passes/passes.h"
#include "loops/normalise.h"
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
  int64_t ints = 0;  // 0: the file does not say
  double tolerance = 0;
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

int64_t random_whole(std::mt19937& rng, DType t, int64_t ints) {
  return static_cast<int64_t>(rng() % static_cast<uint64_t>(t == DType::Bool ? 2 : ints));
}

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
        cell.whole = random_whole(rng, t.dtype, c.ints ? c.ints : 3);
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

CudaTarget target_of(CudaTarget target, const Way& way) {
  if (way.capability) target.capability = way.capability;
  if (way.anything) target.options.aligned = target.options.narrow = false;
  return target;
}
codegen::cuda::PlanLaunches compile(const CudaTarget& target, const Kernels& kernels, const Way& way) {
  const size_t n = kernels.list.size();
  return codegen::cuda::Compilation(kernels.list, target_of(target, way), std::vector<char>(n, way.listed),
                                    kernels.numbers, std::vector<int>(n, way.schedule))
      .finish();
}

/// As the kernel's code wants its memory, and then with code that wants nothing of it.
void run_kernel(const Device& device, const Kernels& kernels, size_t number, const KernelLaunches& k,
                const CudaTarget& target, const std::vector<CUdeviceptr>& buffers,
                const std::vector<int64_t>& symbols) {
  if (!k.refused.empty()) throw std::runtime_error(k.name + " is refused: " + k.refused);
  const driver::LoadedKernel loaded(k, device.context());
  if (loaded.fits(loaded.extents(symbols.data()).data(), buffers.data()))
    return launch(device, loaded, buffers, symbols);
  Kernels one({kernels.list[number]});
  one.numbers = {kernels.numbers[number]};
  const codegen::cuda::PlanLaunches code = compile(target, one, kAnything);
  launch(device, driver::LoadedKernel(code.kernels[0], device.context()), buffers, symbols);
}

class GpuRunner final : public loops::testing::PlanRunner {
 public:
  GpuRunner(const loops::Plan& plan, const std::vector<HostTensor>& inputs, const Device& device,
            const Kernels& kernels, const codegen::cuda::PlanLaunches& code, const CudaTarget& target)
      : PlanRunner(plan, inputs), device_(device), kernels_(kernels), code_(code), target_(target) {}

 private:
  void kernel(const loops::Step& s) override {
    Mirror mirror(device_);
    bool nothing = true;
    const KernelLaunches& k = code_.kernels[static_cast<size_t>(s.kernel)];
    auto is_number = [&](size_t i) { return k.number_bytes.size() > i && k.number_bytes[i]; };
    for (size_t i = 0; i < s.buffers.size(); ++i) {
      const auto b = static_cast<size_t>(s.buffers[i]);
      const int64_t bytes = span(p_.buffers[b]);
      if (bytes > 0 && !is_number(i)) mirror.add(base_[b], bytes);
      nothing = nothing && bytes == 0;
    }
    if (nothing) return;
    mirror.upload();
    std::vector<CUdeviceptr> at;
    for (size_t i = 0; i < s.buffers.size(); ++i) {
      const auto b = static_cast<size_t>(s.buffers[i]);
      at.push_back(is_number(i)              ? reinterpret_cast<CUdeviceptr>(base_[b])
                   : span(p_.buffers[b]) > 0 ? mirror.at(base_[b])
                                             : 0);
    }
    run_kernel(device_, kernels_, static_cast<size_t>(s.kernel), k, target_, at,
               values(p_.kernels[static_cast<size_t>(s.kernel)].symbols));
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
  const Kernels& kernels_;
  const codegen::cuda::PlanLaunches& code_;
  const CudaTarget& target_;
};

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

struct Wanted {
  Kernels kernels;
  std::vector<Way> ways;
};
/// Compiled by as few calls as there are targets: the emulator's compiler takes longer to begin than for many
/// kernels.
void make_ready(Tool& tool, const std::vector<Wanted>& all) {
  using Target = std::pair<bool, int>;
  auto target = [](const Way& way) { return Target(way.anything, way.capability); };
  std::set<Target> targets;
  for (const Wanted& w : all)
    for (const Way& way : w.ways) targets.insert(target(way));
  tool.ready.clear();
  for (const Target& t : targets) {
    std::vector<loops::Kernel> kernels;
    std::vector<char> listed;
    std::vector<std::vector<char>> numbers;
    std::vector<int> schedules;
    for (const Wanted& w : all)
      for (const Way& way : w.ways)
        for (size_t i = 0; i < w.kernels.list.size() && target(way) == t; ++i) {
          kernels.push_back(w.kernels.list[i]);
          numbers.push_back(w.kernels.numbers[i]);
          listed.push_back(way.listed);
          schedules.push_back(way.schedule);
        }
    const Way any{.name = "", .anything = t.first, .capability = t.second};
    tool.ready.push_back(
        codegen::cuda::Compilation(kernels, target_of(tool.target, any), listed, numbers, schedules)
            .finish());
  }
}

loops::Plan plan_of(const Case& c, bool fuse) {
  loops::PlanOptions options;
  options.fuse = fuse;
  return loops::plan(graph::parse(c.text), options);
}

std::string graph_differs(const Tool& tool, const Case& c, bool fuse) {
  const loops::Plan plan = plan_of(c, fuse);
  const std::unique_ptr<graph::Graph> g = graph::parse(c.text);
  const std::vector<HostTensor> inputs = random_inputs(*g, c);
  const std::vector<HostTensor> expected = graph::run_reference(*g, inputs);
  const Kernels kernels(plan);
  for (const Way& way : fuse ? tool.ways() : std::vector<Way>{kUsual}) {
    const codegen::cuda::PlanLaunches code = compile(tool.target, kernels, way);
    tool.device->go(way);
    const std::vector<HostTensor> got =
        GpuRunner(plan, inputs, *tool.device, kernels, code, tool.target).run();
    for (size_t i = 0; i < got.size(); ++i) {
      const double d = graph::difference(got[i], expected[i]);
      if (!(d <= std::max(c.tolerance, tolerance_of(got[i].dtype))))
        return "output " + std::to_string(i) + (fuse ? "" : " unfused") + " " + way.name + " differs by " +
               std::to_string(d);
    }
  }
  return "";
}

/// Elements of a buffer where its kernel does not say: enough for what is in tests/cuda.
constexpr int64_t kElements = 1 << 22;

/// How many elements of a buffer an access reaches.
int64_t reach(const loops::Kernel& k, Sym index, bool gathers, const Case& c) {
  if (gathers) return kElements;
  auto value = [&](Sym s) { return evaluate(s, [&](const SymNode& n) { return c.value(n.name); }); };
  int64_t last = 0;
  for (size_t d = 0; d < k.dims.size(); ++d) {
    const loops::LinearIn along = loops::linear_in(index, loops::Kernel::dim(static_cast<int>(d)));
    if (!along.linear || k.varies(along.coef) || k.varies(k.dims[d].size)) return kElements;
    last += std::max<int64_t>(value(along.coef), 0) * (value(k.dims[d].size) - 1);
    index = along.rest;
  }
  return last + value(index) + 1;
}

std::vector<int64_t> elements_of(const loops::Kernel& k, const Case& c) {
  std::vector<int64_t> all(k.buffers.size(), 1);
  auto reaches = [&](int buffer, Sym index, bool gathers) {
    int64_t& n = all[static_cast<size_t>(buffer)];
    n = std::max(n, reach(k, index, gathers, c));
  };
  for (const loops::Expr& e : k.exprs)
    if (e.kind == loops::ExprKind::Load) reaches(e.buffer, e.index, !e.gather.empty());
  for (const loops::Store& s : k.stores) reaches(s.buffer, s.index, !s.gather.empty());
  return all;
}

/// A kernel of a file, on memory of random numbers, with what the reference makes of them.
class Trial {
 public:
  Trial(const Device& device, const loops::Kernel& k, const Case& c)
      : device_(device), k_(k), elements_(elements_of(k, c)) {
    std::mt19937 rng(7);
    for (size_t i = 0; i < elements_.size(); ++i) {
      const DType type = k.buffers[i].dtype;
      HostTensor t = graph::make_tensor(type, {elements_[i]});
      for (auto& cell : t.cells) {
        if (t.is_real())
          cell.real = random_real(rng);
        else
          cell.whole = random_whole(rng, type, c.ints ? c.ints : 100);
      }
      given_.emplace_back(static_cast<size_t>(elements_[i] * dtype_bytes(type)));
      graph::store_tensor(t, {1}, given_.back().data());
    }
    for (Sym s : k.symbols) symbols_.push_back(c.value(s.node()->name));
    expected_ = given_;
    std::vector<void*> at;
    int64_t report = 0;
    for (auto& e : expected_) at.push_back(e.data());
    at.push_back(&report);
    loops::run_reference(k, at.data(), symbols_.data());
  }

  void begin() {
    got_ = given_;
    buffers_.clear();
    mirror_ = std::make_unique<Mirror>(device_);
    for (auto& g : got_) mirror_->add(g.data(), static_cast<int64_t>(g.size()));
    mirror_->upload();
    for (auto& g : got_) buffers_.push_back(mirror_->at(g.data()));
  }
  const std::vector<CUdeviceptr>& buffers() const { return buffers_; }
  const std::vector<int64_t>& symbols() const { return symbols_; }
  const loops::Kernel& kernel() const { return k_; }
  std::string end(const char* way) {
    mirror_->download();
    mirror_.reset();
    for (size_t i = 0; i < got_.size(); ++i) {
      if (got_[i] == expected_[i]) continue;
      const double d = graph::difference(tensor(i, got_[i]), tensor(i, expected_[i]));
      if (!(d <= tolerance_of(k_.buffers[i].dtype) * 10))
        return "@" + k_.name + " b" + std::to_string(i) + " " + way + " differs by " + std::to_string(d);
    }
    return "";
  }

 private:
  HostTensor tensor(size_t i, const std::vector<char>& bytes) const {
    return graph::load_tensor(k_.buffers[i].dtype, {elements_[i]}, {1}, bytes.data());
  }

  const Device& device_;
  const loops::Kernel& k_;
  const std::vector<int64_t> elements_;
  std::vector<int64_t> symbols_;
  std::vector<std::vector<char>> given_, expected_, got_;
  std::unique_ptr<Mirror> mirror_;
  std::vector<CUdeviceptr> buffers_;
};

std::string kernel_differs(const Tool& tool, Trial& trial, const Way& way) {
  const Kernels kernels({trial.kernel()});
  const codegen::cuda::PlanLaunches code = compile(tool.target, kernels, way);
  tool.device->go(way);
  trial.begin();
  run_kernel(*tool.device, kernels, 0, code.kernels[0], tool.target, trial.buffers(), trial.symbols());
  return trial.end(way.name);
}

/// All kernels that may join each other, by as few launches as they fit into.
std::string list_differs(const Tool& tool, const std::vector<Trial*>& trials) {
  using Loaded = driver::LoadedKernel;
  std::vector<std::unique_ptr<Loaded>> loaded;
  std::vector<std::vector<int64_t>> extents;
  std::vector<std::unique_ptr<Memory>> scratch;
  std::vector<Loaded::OfList> list;
  constexpr Way kListed{.name = "beside others in a list", .listed = true};
  tool.device->go(kListed);
  std::vector<loops::Kernel> kernels;
  for (const Trial* t : trials) kernels.push_back(t->kernel());
  const codegen::cuda::PlanLaunches code = compile(tool.target, Kernels(kernels), kListed);
  for (size_t i = 0; i < trials.size(); ++i) {
    trials[i]->begin();
    loaded.push_back(std::make_unique<Loaded>(code.kernels[i], tool.device->context()));
    if (!loaded[i]->may_join(*loaded[0])) return "@" + kernels[i].name + " cannot be in its list";
    extents.push_back(loaded[i]->extents(trials[i]->symbols().data()));
    scratch.push_back(
        std::make_unique<Memory>(static_cast<size_t>(loaded.back()->scratch_bytes(extents.back().data()))));
  }
  for (size_t i = 0; i < trials.size(); ++i)
    list.push_back(
        {loaded[i].get(),
         {extents[i].data(), trials[i]->symbols().data(), trials[i]->buffers().data(), 0, scratch[i]->at()}});
  Loaded::launch_list(list, tool.device->stream());
  tool.device->wait();
  std::string wrong;
  for (Trial* t : trials)
    if (wrong.empty()) wrong = t->end(kListed.name);
  return wrong;
}

std::string kernels_differ(const Tool& tool, const std::vector<loops::Kernel>& kernels, const Case& c) {
  std::vector<Way> ways = tool.ways();
  if (ways.size() == 1) ways.push_back(kAnything);
  std::vector<std::unique_ptr<Trial>> trials;
  std::map<std::string, std::vector<Trial*>> lists;
  std::string wrong;
  for (const loops::Kernel& k : kernels) {
    trials.push_back(std::make_unique<Trial>(*tool.device, k, c));
    for (const Way& way : ways)
      if (wrong.empty()) wrong = kernel_differs(tool, *trials.back(), way);
    codegen::cuda::ScheduleOptions options = tool.target.options;
    options.capability = tool.target.capability;
    const std::string key = codegen::cuda::list_key(k, options);
    if (!key.empty()) lists[key].push_back(trials.back().get());
  }
  for (const auto& [key, list] : lists)
    if (wrong.empty()) wrong = list_differs(tool, list);
  return wrong;
}

/// Kernels that know their sizes are run at the first one only.
std::string case_differs(const Tool& tool, const Case& c) {
  if (std::vector<loops::Kernel> kernels = read_kernels(c.text); !kernels.empty()) {
    if (!tool.at_first_size) std::erase_if(kernels, [](const loops::Kernel& k) { return k.symbols.empty(); });
    return kernels_differ(tool, kernels, c);
  }
  const std::string wrong = graph_differs(tool, c, true);
  return wrong.empty() && tool.at_first_size ? graph_differs(tool, c, false) : wrong;
}

bool has_unknown_sizes(const Case& c) {
  const std::vector<loops::Kernel> kernels = read_kernels(c.text);
  if (!kernels.empty())
    return std::ranges::any_of(kernels, [](const loops::Kernel& k) { return !k.symbols.empty(); });
  const std::unique_ptr<graph::Graph> g = graph::parse(c.text);
  return std::ranges::any_of(g->inputs, [&](const graph::Input& in) {
    return std::ranges::any_of(in.value->type.sizes, [&](Sym s) {
      return !s.is_const() && s.node()->op == SymOp::Symbol && !c.sizes.count(s.node()->name);
    });
  });
}

/// What cannot be read or planned is met again, and told, where it is used.
void make_ready(Tool& tool, const std::vector<std::string>& files) {
  std::vector<Wanted> all;
  for (const std::string& file : files) try {
      const Case c = read_case(file);
      if (std::vector<loops::Kernel> kernels = read_kernels(c.text); !kernels.empty())
        all.push_back({Kernels(std::move(kernels)), tool.ways()});
      else
        for (bool fuse : {true, false})
          all.push_back({Kernels(plan_of(c, fuse)), fuse ? tool.ways() : std::vector<Way>{kUsual}});
    } catch (const std::exception&) {
    }
  make_ready(tool, all);
}

void run_file(Tool& tool, const std::string& file) {
  std::string wrong;
  try {
    Case c = read_case(file);
    const bool any_size = has_unknown_sizes(c);
    for (size_t i = 0; i < (any_size ? tool.sizes.size() : 1) && wrong.empty(); ++i) {
      c.other_sizes = tool.sizes[i];
      tool.at_first_size = i == 0;
      wrong = case_differs(tool, c);
      if (!wrong.empty() && any_size) wrong += ", of size " + std::to_string(tool.sizes[i]);
    }
  } catch (const std::exception& e) {
    wrong = e.what();
  }
  tool.at_first_size = true;
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

/// One random graph, planned, and the way in which it is run.
struct Seed {
  unsigned seed;
  fuzz::Case given;
  std::string text;
  loops::Plan plan;
  Way way;

  Seed(const Tool& tool, unsigned number)
      : seed(number),
        given(fuzz::Generator(number, limits(number)).run()),
        text(graph::print(*given.graph)),
        way(tool.ways()[number % tool.ways().size()]) {
    std::unique_ptr<graph::Graph> g = graph::parse(text);
    graph::optimize(*g);
    loops::PlanOptions options;
    options.fuse = number % 8 != 7;
    plan = loops::plan(std::move(g), options);
  }
  /// Some of them beyond a block.
  static fuzz::Limits limits(unsigned number) {
    fuzz::Limits usual;
    if (number % 4 == 3) usual = {.nodes = 6, .size = 600, .numel = 1 << 13};
    return usual;
  }
};

std::string seed_differs(const Tool& tool, const Seed& s) {
  const Kernels kernels(s.plan);
  const codegen::cuda::PlanLaunches code = compile(tool.target, kernels, s.way);
  if (!tool.device) return "";
  tool.device->go(s.way);
  const fuzz::SampleMap expected = fuzz::samples_of(*s.given.graph, s.given.inputs);
  GpuRunner runner(s.plan, s.given.inputs, *tool.device, kernels, code, tool.target);
  return values_differ(*s.given.graph, runner.run(), expected);
}

void fuzz_seeds(Tool& tool, const std::string& range) {
  constexpr unsigned kTogether = 32;
  const auto first = static_cast<unsigned>(std::stoul(range));
  const auto count = static_cast<unsigned>(std::stoul(range.substr(range.find(':') + 1)));
  for (unsigned begin = first; begin < first + count; begin += kTogether) {
    std::vector<std::unique_ptr<Seed>> seeds;
    std::vector<Wanted> wanted;
    auto report = [&](unsigned seed, const std::string& wrong) {
      if (!wrong.empty()) say(tool, "seed " + std::to_string(seed), wrong);
    };
    auto tried = [&](unsigned seed, const auto& f) {
      try {
        return f();
      } catch (const std::exception& e) {
        report(seed, e.what());
      }
    };
    for (unsigned seed = begin; seed < std::min(begin + kTogether, first + count); ++seed)
      tried(seed, [&] { seeds.push_back(std::make_unique<Seed>(tool, seed)); });
    for (const auto& s : seeds) wanted.push_back({Kernels(s->plan), {s->way}});
    if (tool.emulator.as) make_ready(tool, wanted);
    for (const auto& s : seeds) {
      tried(s->seed, [&] {
        const std::string wrong = seed_differs(tool, *s);
        if (!wrong.empty())
          throw std::runtime_error(std::string(s->way.name) + ", " + wrong + "\n" + s->text);
      });
    }
  }
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

std::vector<int64_t> numbers_in(const std::string& text) {
  std::vector<int64_t> numbers;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) numbers.push_back(std::stoll(one));
  return numbers;
}

int main_of(int argc, char** argv) {
  std::vector<std::string> paths, files;
  std::string mode = "run", seeds, emulator;
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--nvrtc=", 0) == 0)
      paths.push_back(arg.substr(8));
    else if (arg.rfind("--emulate=", 0) == 0)
      emulator = arg.substr(10);
    else if (arg.rfind("--sizes=", 0) == 0)
      sizes = numbers_in(arg.substr(8));
    else if (arg.rfind("--fuzz=", 0) == 0)
      seeds = arg.substr(7);
    else if (arg == "--compile" || arg == "--time")
      mode = arg.substr(2);
    else
      files.push_back(arg);
  }
  Tool tool;
  if (!emulator.empty()) {
    // As the driver that the loader then finds under its name.
    void* library = ::dlopen(emulator.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(::dlerror());
    tool.emulator.as = reinterpret_cast<void (*)(int, int)>(::dlsym(library, "emulate_as"));
    if (!tool.emulator.as) throw std::runtime_error(emulator + " is no emulator");
    paths = {emulator};
  }
  std::string why;
  tool.target.nvrtc = codegen::cuda::Nvrtc::open(paths, &why);
  if (!tool.target.nvrtc) throw std::runtime_error(why);
  if (!sizes.empty()) tool.sizes = sizes;
  if (mode != "compile") {
    tool.device = std::make_unique<Device>(tool.emulator.as ? &tool.emulator : nullptr);
    tool.target.capability = driver::capability(0);
    char name[256] = "";
    driver::get().cuDeviceGetName(name, sizeof name, 0);
    std::printf("%s, NVRTC %s\n", name, tool.target.nvrtc->version().c_str());
  }
  if (tool.emulator.as && mode == "run") make_ready(tool, files);
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

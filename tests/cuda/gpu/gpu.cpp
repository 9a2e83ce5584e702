// tests/cuda/gpu/gpu.cpp
#include "tests/cuda/gpu/gpu.h"

#include <cctype>
#include <cstdio>
#include <fstream>
#include <set>

namespace bolt::gpu {

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
    c.rounds_as_eager |= rest == "numerics: eager";
    if (eq != rest.npos && rest.find(' ') == eq && std::isdigit(static_cast<unsigned char>(rest[eq + 3])))
      c.sizes[rest.substr(0, eq)] = std::stoll(rest.substr(eq + 3));
  }
  return c;
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

/// Multiples of 1/64 below 2 are exact in every floating type.
double random_real(std::mt19937& rng) { return static_cast<double>(rng() % 256) / 64 - 2; }

int64_t random_whole(std::mt19937& rng, DType t, int64_t ints) {
  return static_cast<int64_t>(rng() % static_cast<uint64_t>(t == DType::Bool ? 2 : ints));
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

namespace {
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

CudaTarget target_of(CudaTarget target, const Way& way) {
  if (way.capability) target.capability = way.capability;
  if (way.anything) target.options.aligned = target.options.narrow = false;
  return target;
}
}  // namespace

codegen::cuda::PlanLaunches compile(const CudaTarget& target, const Kernels& kernels, const Way& way) {
  const size_t n = kernels.list.size();
  return codegen::cuda::Compilation(kernels.list, target_of(target, way), std::vector<char>(n, way.listed),
                                    kernels.numbers, std::vector<int>(n, way.schedule))
      .finish();
}

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

void say(Tool& tool, const std::string& file, const std::string& wrong) {
  std::printf("%s  %s\n", wrong.empty() ? "ok   " : "WRONG",
              (file + (wrong.empty() ? "" : ": " + wrong)).c_str());
  std::fflush(stdout);
  tool.ok = tool.ok && wrong.empty();
}

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

}  // namespace bolt::gpu

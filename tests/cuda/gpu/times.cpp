// tests/cuda/gpu/times.cpp
// A graph -> device time of each kernel of its plan, of many launches queued one behind another, beside a
// copy of as many bytes.

#include <chrono>
#include <cstdio>

#include "tests/cuda/gpu/gpu.h"

namespace bolt::gpu {
namespace {

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

}  // namespace

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

}  // namespace bolt::gpu

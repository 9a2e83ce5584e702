// tests/cuda/gpu/graphs.cpp
// A graph -> what differs from the reference when its plan's kernels run on the device; the other steps run
// as in tests/loops (plan_runner.h).

#include "tests/cuda/gpu/gpu.h"
#include "tests/loops/plan_runner.h"

namespace bolt::gpu {
namespace {

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

}  // namespace

std::vector<HostTensor> run_plan(const Tool& tool, const loops::Plan& plan,
                                 const std::vector<HostTensor>& inputs, const Kernels& kernels,
                                 const codegen::cuda::PlanLaunches& code) {
  return GpuRunner(plan, inputs, *tool.device, kernels, code, tool.target).run();
}

loops::Plan plan_of(const Case& c, bool fuse) {
  loops::PlanOptions options;
  options.fuse = fuse;
  options.rounds_as_eager = c.rounds_as_eager;
  return loops::plan(graph::parse(c.text), options);
}

std::string graph_differs(const Tool& tool, const Case& c, bool fuse) {
  const loops::Plan plan = plan_of(c, fuse);
  const std::unique_ptr<graph::Graph> g = graph::parse(c.text);
  const std::vector<HostTensor> inputs = random_inputs(*g, c);
  const std::vector<HostTensor> expected = graph::run_reference(*g, inputs, c.rounds_as_eager);
  const Kernels kernels(plan);
  for (const Way& way : fuse ? tool.ways() : std::vector<Way>{kUsual}) {
    const codegen::cuda::PlanLaunches code = compile(tool.target, kernels, way);
    tool.device->go(way);
    const std::vector<HostTensor> got = run_plan(tool, plan, inputs, kernels, code);
    for (size_t i = 0; i < got.size(); ++i) {
      const double d = graph::difference(got[i], expected[i]);
      const double usual = c.rounds_as_eager ? 0 : tolerance_of(got[i].dtype);
      if (!(d <= std::max(c.tolerance, usual)))
        return "output " + std::to_string(i) + (fuse ? "" : " unfused") + " " + way.name + " differs by " +
               std::to_string(d);
    }
  }
  return "";
}

}  // namespace bolt::gpu

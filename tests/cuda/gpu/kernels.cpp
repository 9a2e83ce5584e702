// tests/cuda/gpu/kernels.cpp
// Kernels by themselves, on buffers of random numbers -> what differs from the reference in any of them.

#include "codegen/cuda/lists.h"
#include "loops/normalise.h"
#include "tests/cuda/gpu/gpu.h"
#include "tests/reference/kernel.h"

namespace bolt::gpu {
namespace {

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

}  // namespace

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

}  // namespace bolt::gpu

// device/driver/launch.cpp
// See launch.h.

#include "device/driver/launch.h"

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

#include "codegen/cuda/lists.h"
#include "support/error.h"
#include "support/symbols.h"

namespace bolt::device::driver {

using codegen::cuda::Cubin;

class LoadedModule {
 public:
  LoadedModule(std::shared_ptr<const Cubin> code, CUcontext context)
      : code_(std::move(code)), context_(context) {
    const ContextGuard current(context_);
    check(get().cuModuleLoadData(&module_, code_->image().data()), "cuModuleLoadData");
  }
  /// When the process ends, the driver may be gone before us: what it says then does not matter.
  ~LoadedModule() {
    CUcontext ignored = nullptr;
    if (get().cuCtxPushCurrent_v2(context_) != kSuccess) return;
    get().cuModuleUnload(module_);
    get().cuCtxPopCurrent_v2(&ignored);
  }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  CUfunction function(const std::string& name) const {
    CUfunction f = nullptr;
    check(get().cuModuleGetFunction(&f, module_, name.c_str()), name.c_str());
    return f;
  }

 private:
  const std::shared_ptr<const Cubin> code_;
  const CUcontext context_;
  CUmodule module_ = nullptr;
};

namespace {

/// Plans share functions, and so the modules that hold them.
std::shared_ptr<LoadedModule> load(const std::shared_ptr<const Cubin>& code, CUcontext context) {
  static std::mutex mutex;
  static std::map<std::pair<const Cubin*, CUcontext>, std::weak_ptr<LoadedModule>> known;
  std::lock_guard lock(mutex);
  std::weak_ptr<LoadedModule>& entry = known[{code.get(), context}];
  if (auto module = entry.lock()) return module;
  auto module = std::make_shared<LoadedModule>(code, context);
  entry = module;
  return module;
}

/// The arguments of one launch: all are at most 8 bytes, and the driver reads each through a pointer.
class LaunchArguments {
 public:
  void add(uint64_t value) {
    BOLT_CHECK(count_ < kMost, "a kernel with more than ", kMost, " arguments");
    values_[count_] = value;
    pointers_[count_] = &values_[count_];
    ++count_;
  }
  void** pointers() { return pointers_.data(); }

 private:
  static constexpr size_t kMost = 512;  // 4 KB, which the driver takes on every architecture
  std::array<uint64_t, kMost> values_;
  std::array<void*, kMost> pointers_;
  size_t count_ = 0;
};

/// `List` of the prelude: a count, where each begins, and the arguments of each.
class ListArguments {
 public:
  explicit ListArguments(size_t most) : most_(most) {}
  void begin(int64_t block) {
    put(1 + count_, block);
    put(0, static_cast<int64_t>(++count_));
  }
  void add(uint64_t value) {
    BOLT_CHECK(next_ < words_.size(), "a list of launches that is too long");
    words_[next_++] = value;
  }
  bool full() const { return count_ == most_; }
  void clear() {
    count_ = 0;
    next_ = head();
  }
  void** pointers() { return &at_; }

 private:
  void put(size_t at, int64_t value) {
    const auto narrow = static_cast<uint32_t>(value);
    std::memcpy(reinterpret_cast<char*>(words_.data()) + at * sizeof narrow, &narrow, sizeof narrow);
  }
  /// Words of the count and the beginnings.
  size_t head() const { return (1 + most_ + 1) / 2; }

  const size_t most_;
  size_t count_ = 0, next_ = head();
  std::array<uint64_t, codegen::cuda::kArgumentBytes / sizeof(uint64_t)> words_{};
  void* at_ = words_.data();
};

/// Blocks, count, points.
constexpr size_t kExtentsOfLaunch = 3;
constexpr int64_t kMostBlocks = int64_t{1} << 31;
constexpr unsigned kHostPortable = 1, kHostMapped = 2;

}  // namespace

LoadedKernel::LoadedKernel(const codegen::cuda::KernelLaunches& kernel, CUcontext context) : kernel_(kernel) {
  BOLT_CHECK(kernel.refused.empty(), "kernel ", kernel.name, " has no code: ", kernel.refused);
  extent_count_ = kernel_.extents().size();
  const ContextGuard current(context);
  for (const codegen::cuda::GridLaunch& l : kernel_.launches) {
    modules_.push_back(load(l.code, context));
    functions_.push_back(modules_.back()->function(l.function));
    // Must be asked for once where a block has more shared memory than 48 KB, of which what the text of the
    // kernel declares is a part that only its compiler knows.
    auto ask = [&](int attribute, int64_t value) {
      check(get().cuFuncSetAttribute(functions_.back(), attribute, static_cast<int>(value)),
            "cuFuncSetAttribute");
    };
    if (l.shared_bytes > 0) ask(kMaxDynamicSharedBytes, l.shared_bytes);
    if (l.cluster > codegen::cuda::kPortableCluster) ask(kWideClusters, 1);
  }
}

std::vector<int64_t> LoadedKernel::extents(const int64_t* symbols) const {
  std::vector<int64_t> values;
  for (Sym s : kernel_.extents())
    values.push_back(evaluate(s, kernel_.symbols, [&](size_t i) { return symbols[i]; }));
  return values;
}

bool LoadedKernel::fits(const int64_t* extents, const CUdeviceptr* buffers) const {
  CUdeviceptr bits = 0;
  for (size_t i = 0; i < kernel_.buffers; ++i)
    if (!kernel_.number_bytes[i]) bits |= buffers[i];
  bool small = true;
  for (size_t i = 0; i < functions_.size(); ++i)
    small = small && extents[kExtentsOfLaunch * i + 2] <= std::numeric_limits<int32_t>::max();
  return bits % 16 == 0 && small;
}

/// In their order.
template <class Add>
void LoadedKernel::add_arguments(size_t launch, const Given& g, Add add) const {
  const codegen::cuda::GridLaunch& l = kernel_.launches[launch];
  const int64_t* offsets = g.extents + kExtentsOfLaunch * functions_.size();
  for (int b : l.buffers) {
    const auto at = static_cast<size_t>(b);
    if (at >= kernel_.buffers) {
      add(g.scratch + static_cast<CUdeviceptr>(offsets[at - kernel_.buffers]));
    } else if (const int bytes = kernel_.number_bytes[at]; bytes > 0) {
      uint64_t number = 0;
      std::memcpy(&number, reinterpret_cast<const void*>(g.buffers[at]), static_cast<size_t>(bytes));
      add(number);
    } else {
      add(g.buffers[at]);
    }
  }
  if (l.reports) add(g.report);
  add(static_cast<uint64_t>(g.extents[kExtentsOfLaunch * launch + 1]));
  for (size_t s = 0; s < kernel_.symbols.size(); ++s) add(static_cast<uint64_t>(g.symbols[s]));
  for (int64_t v : kernel_.values) add(static_cast<uint64_t>(v));
}

int64_t LoadedKernel::blocks(size_t launch, const Given& g) const {
  const int64_t blocks = g.extents[kExtentsOfLaunch * launch];
  BOLT_CHECK(blocks >= 0 && blocks < kMostBlocks, "kernel ", kernel_.name, ": ", blocks, " blocks");
  return blocks;
}

void LoadedKernel::start(size_t launch, int64_t blocks, void** arguments, CUstream stream) const {
  const codegen::cuda::GridLaunch& l = kernel_.launches[launch];
  check(get().cuLaunchKernel(functions_[launch], static_cast<unsigned>(blocks), 1, 1,
                             static_cast<unsigned>(l.threads), 1, 1, static_cast<unsigned>(l.shared_bytes),
                             stream, arguments, nullptr),
        kernel_.name.c_str());
}

void LoadedKernel::launch(const Given& given, CUstream stream) const {
  if (is_listed()) {
    const OfList alone{this, given};
    return launch_list({&alone, 1}, stream);
  }
  for (size_t i = 0; i < functions_.size(); ++i) {
    const int64_t count = blocks(i, given);
    if (count == 0) continue;
    LaunchArguments arguments;
    add_arguments(i, given, [&](uint64_t value) { arguments.add(value); });
    start(i, count, arguments.pointers(), stream);
  }
}

void LoadedKernel::launch_list(std::span<const OfList> list, CUstream stream) {
  const LoadedKernel& first = *list.front().kernel;
  for (size_t i = 0; i < first.functions_.size(); ++i) {
    ListArguments arguments(static_cast<size_t>(first.kernel_.launches[i].most));
    int64_t all = 0;
    auto go = [&] {
      if (all > 0) first.start(i, all, arguments.pointers(), stream);
      arguments.clear();
      all = 0;
    };
    for (const OfList& one : list) {
      const int64_t blocks = one.kernel->blocks(i, one.given);
      if (blocks == 0) continue;
      if (arguments.full() || all + blocks >= kMostBlocks) go();
      arguments.begin(all);
      one.kernel->add_arguments(i, one.given, [&](uint64_t value) { arguments.add(value); });
      all += blocks;
    }
    go();
  }
}

int LoadedKernel::attribute(size_t launch, int which) const {
  int value = 0;
  check(get().cuFuncGetAttribute(&value, which, functions_[launch]), "cuFuncGetAttribute");
  return value;
}

ReportWord::ReportWord() {
  void* at = nullptr;
  check(get().cuMemHostAlloc(&at, sizeof(int64_t), kHostPortable | kHostMapped), "cuMemHostAlloc");
  word_ = static_cast<volatile int64_t*>(at);
  *word_ = 0;
}

ReportWord::~ReportWord() { get().cuMemFreeHost(const_cast<int64_t*>(word_)); }

bool ReportWord::take() {
  if (*word_ == 0) return false;
  *word_ = 0;
  return true;
}

}  // namespace bolt::device::driver

// device/cpu.cpp
// Kernels run in the calling thread and, where there is work enough, on torch's threads; everything is done
// when a launch returns.
#include "device/cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <bit>
#include <cstring>

#include "codegen/cpu/compile_plan.h"
#include "codegen/cpu/target.h"
#include "device/cpu_recording.h"
#include "device/cpu_results.h"
#include "support/knobs.h"
#include "support/parallel.h"

namespace bolt::device {
namespace {

Turns cpu_turns;  // of recordings

struct CpuQueue final : Queue {
  void begin() override { report = 0; }
  Turn turn() override { return Turn(cpu_turns.ask() == Turns::Answer::yours ? &cpu_turns : nullptr); }
  bool reported() const override { return report != 0; }
  bool keeps_calls() const override { return CpuRecording::is_under_way(); }
  void keep_call(std::function<void()> again) override { CpuRecording::keep_call(std::move(again)); }
  int64_t report = 0;
  at::Tensor scratch;  // of one launch after another
};

class CpuCode final : public DeviceCode {
 public:
  explicit CpuCode(const loops::Plan& plan) {
    auto compilation = std::make_shared<codegen::cpu::PlanCompilation>(plan);
    for (const auto& k : compilation->kernels()) facts_.push_back({{k.work, k.second_work}});
    for (const auto& k : plan.kernels) symbols_.push_back(k.symbols.size());
    under_way_ = started([compilation] { return compilation->finish(); });
  }

  const KernelFacts& facts(int kernel) const override { return facts_[kernel]; }
  bool finish() override {
    if (under_way_.valid()) code_ = under_way_.get();
    return code_.module->from_cache();
  }

  void launch(int kernel, Queue& queue, const Launch& l) const override {
    const auto at = static_cast<size_t>(kernel);
    const bool kept =
        CpuRecording::keep(l, symbols_[at], facts_[at].extents.size(),
                           [this, kernel, &queue](const Launch& again) { run(kernel, queue, again); });
    if (!kept) run(kernel, queue, l);
  }

  void reserve(int kernel, Queue& queue, const int64_t*) const override {
    const int64_t bytes = code_.kernels[kernel].scratch_bytes;
    at::Tensor& scratch = static_cast<CpuQueue&>(queue).scratch;
    if (bytes > 0 && (!scratch.defined() || scratch.numel() < bytes))
      scratch = at::empty({bytes}, at::TensorOptions().dtype(c10::kByte));
  }

  void pack(int kernel, Queue&, const void* weights, const std::vector<int64_t>& strides,
            void* packed) const override {
    const auto& item = *code_.contractions[kernel];
    codegen::cpu::gemm::pack_weights(item.contraction, item.schedule, weights, strides,
                                     static_cast<float*>(packed));
  }

 private:
  void run(int kernel, Queue& queue, const Launch& l) const {
    const codegen::cpu::CompiledKernel& k = code_.kernels[kernel];
    if (k.reports) l.pointers.push_back(&static_cast<CpuQueue&>(queue).report);
    if (k.scratch_bytes > 0) {
      reserve(kernel, queue, l.extents);
      l.pointers.push_back(static_cast<CpuQueue&>(queue).scratch.data_ptr());
    }
    run(k.fn, l, l.extents[0], k.grain);
    if (k.second_fn) run(k.second_fn, l, l.extents[1], k.second_grain);
  }
  static void run(codegen::cpu::KernelFn fn, const Launch& l, int64_t work, int64_t grain) {
    void* const* pointers = l.pointers.data();
    if (work <= grain || at::get_num_threads() == 1)
      fn(pointers, l.numbers, 0, work);
    else
      at::parallel_for(0, work, grain,
                       [&](int64_t begin, int64_t end) { fn(pointers, l.numbers, begin, end); });
  }

  std::future<codegen::cpu::PlanFunctions> under_way_;  ///< until it is finished
  codegen::cpu::PlanFunctions code_;
  std::vector<KernelFacts> facts_;
  std::vector<size_t> symbols_;  // by kernel: how many
};

/// From its first element to its last, with what lies between: of expanded tensors few, of slices more than
/// they show.
size_t bytes_of(const c10::TensorImpl& impl) {
  if (impl.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < impl.dim(); ++d) last += (impl.size(d) - 1) * impl.stride(d);
  return static_cast<size_t>(last + 1) * impl.itemsize();
}

class Cpu final : public DeviceInterface {
 public:
  std::optional<int64_t> generates(const loops::PlannedContraction& call) const override {
    return options_.generates(call);
  }
  bool accepts_epilogue(const loops::PlannedContraction& call, const loops::Kernel& epilogue) const override {
    return options_.accepts_epilogue(call, epilogue);
  }
  bool widens(const graph::Node& contraction) const override { return options_.widens(contraction); }
  std::unique_ptr<DeviceCode> compile(const loops::Plan& plan) const override {
    return std::make_unique<CpuCode>(plan);
  }

  std::string fingerprint(c10::Device) const override { return codegen::cpu::Target::host().key(); }

  std::unique_ptr<Queue> queue(c10::Device) const override { return std::make_unique<CpuQueue>(); }
  at::Tensor arena(c10::Device, int64_t bytes) const override {
    return at::empty({bytes}, at::TensorOptions().dtype(c10::kByte));
  }
  bool works_behind_host() const override { return false; }
  bool keeps_arenas() const override { return true; }
  at::Tensor result(c10::Device, at::IntArrayRef sizes, at::IntArrayRef strides,
                    c10::ScalarType dtype) const override {
    return new_cpu_result(sizes, strides, dtype);
  }

  bool records() const override { return knob("TORCHBOLT_CPU_RECORDINGS") != "0"; }
  bool records_calls() const override { return knob("TORCHBOLT_CPU_RECORDINGS") == "calls"; }
  std::unique_ptr<RecordedLaunches> record(Queue&, bool, const std::function<void()>& work) const override {
    return std::make_unique<CpuRecording>(work);
  }
  std::shared_ptr<void> reserve(Queue&, const std::function<void()>& work) const override {
    work();
    return nullptr;
  }

  std::unique_ptr<ResultMemory> result_memory(c10::Device) const override {
    return std::make_unique<CpuResultMemory>();
  }

  /// Four words spread over the tensor tell every update of a whole tensor apart, whoever made it.
  Sample sample(const c10::TensorImpl& impl) const override {
    Sample words{};
    const size_t bytes = bytes_of(impl);
    if (bytes < sizeof(uint64_t)) {
      if (bytes) std::memcpy(words.data(), impl.data(), bytes);
      return words;
    }
    const char* data = static_cast<const char*>(impl.data());
    for (size_t i = 0; i < words.size(); ++i)
      std::memcpy(&words[i], data + (bytes - sizeof(uint64_t)) * i / (words.size() - 1) / 8 * 8,
                  sizeof(uint64_t));
    return words;
  }

  /// Four words at a time: as fast as memory is read.
  std::optional<uint64_t> hash(const c10::TensorImpl& impl) const override {
    constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
    const size_t bytes = bytes_of(impl);
    const char* data = static_cast<const char*>(impl.data());
    uint64_t lanes[4] = {1, 2, 3, 4};
    size_t at = 0;
    for (; at + sizeof(lanes) <= bytes; at += sizeof(lanes)) {
      uint64_t words[4];
      std::memcpy(words, data + at, sizeof(words));
      for (int i = 0; i < 4; ++i) lanes[i] = std::rotl(lanes[i] ^ words[i], 29) * kPrime;
    }
    for (; at < bytes; ++at) lanes[at % 4] = (lanes[at % 4] ^ static_cast<unsigned char>(data[at])) * kPrime;
    uint64_t hash = bytes;
    for (uint64_t lane : lanes) hash = std::rotl(hash ^ lane, 31) * kPrime;
    return hash;
  }

 private:
  const loops::PlanOptions options_ = codegen::cpu::options_that_generate();
};

}  // namespace

const DeviceInterface* cpu() {
  static const auto* device = new Cpu;  // programs may run after every static
  return device;
}

}  // namespace bolt::device

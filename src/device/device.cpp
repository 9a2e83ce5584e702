// device/device.cpp
// Which devices there are.
#include "device/device.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "device/cpu.h"
#include "device/cuda.h"
#include "record/convert.h"
#include "record/tape.h"
#include "support/error.h"
#include "support/knobs.h"

namespace bolt::device {

Queue::~Queue() = default;
DeviceCode::~DeviceCode() = default;
void DeviceCode::reserve(int, Queue&, const int64_t*) const {}
DeviceInterface::~DeviceInterface() = default;
RecordedLaunches::~RecordedLaunches() = default;
ResultMemory::~ResultMemory() = default;

void DeviceCode::launch_list(std::span<const OfList> list, Queue& queue) const {
  for (const OfList& one : list) launch(one.kernel, queue, one.launch);
}

void Queue::copy(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::unique_ptr<RecordedLaunches> DeviceInterface::record(Queue&, bool, const std::function<void()>&) const {
  throw Error(ErrorKind::Internal, "a device without recordings");
}

std::shared_ptr<void> DeviceInterface::reserve(Queue&, const std::function<void()>&) const {
  throw Error(ErrorKind::Internal, "a device without recordings");
}

const DeviceInterface* find(graph::DeviceKind kind) {
  switch (kind) {
    case graph::DeviceKind::CPU: return cpu();
    case graph::DeviceKind::CUDA: return cuda();
    case graph::DeviceKind::Other: return nullptr;
  }
  return nullptr;
}

std::string why_not(c10::Device device) {
  if (find(record::to_bolt(device).kind)) return "";
  if (device.is_cuda()) return "nothing is compiled for tensors on CUDA here: " + why_no_cuda();
  return "nothing is compiled for tensors on " + device.str();
}

std::string why_not(const record::Tape& tape) {
  for (const record::TensorInfo& t : tape.tensors)
    if (std::string why = why_not(t.device); !why.empty()) return why;
  return "";
}

c10::Device to_torch(graph::Device device) {
  if (device.kind == graph::DeviceKind::CPU) return c10::kCPU;
  BOLT_CHECK(device.kind == graph::DeviceKind::CUDA, "a plan for a device that nothing is compiled for");
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

loops::PlanOptions options_of_devices() {
  auto of = [](const loops::PlannedContraction& call) { return find(call.node.out()->type.device.kind); };
  loops::PlanOptions options;
  options.generates = [of](const loops::PlannedContraction& call) -> std::optional<int64_t> {
    const DeviceInterface* device = of(call);
    return device ? device->generates(call) : std::nullopt;
  };
  options.accepts_epilogue = [of](const loops::PlannedContraction& call, const loops::Kernel& epilogue) {
    const DeviceInterface* device = of(call);
    return device && device->accepts_epilogue(call, epilogue);
  };
  options.widens = [](const graph::Node& contraction) {
    const DeviceInterface* device = find(contraction.out()->type.device.kind);
    return device && device->widens(contraction);
  };
  options.merges = [](const std::vector<const graph::Node*>& products) {
    const DeviceInterface* device = find(products.front()->out()->type.device.kind);
    const bool as_devices_like = knob("TORCHBOLT_MERGE_PRODUCTS") == "auto";
    return as_devices_like ? device && device->merges(products) : knob_bool("TORCHBOLT_MERGE_PRODUCTS");
  };
  options.ends_in = [](const graph::Node& call, graph::Op ending) {
    const DeviceInterface* device = find(call.out()->type.device.kind);
    return device && device->ends_in(call, ending);
  };
  options.ends_in_float = [](const graph::Node& product) {
    const DeviceInterface* device = find(product.out()->type.device.kind);
    return device && device->ends_in_float(product);
  };
  options.list_key = [](const loops::Kernel& kernel, const std::vector<char>& numbers, graph::Device on) {
    const DeviceInterface* device = find(on.kind);
    return device ? device->list_key(kernel, numbers, on) : std::string();
  };
  return options;
}

bool hands_out_memory(graph::Device device) {
  const DeviceInterface* known = find(device.kind);
  return known && !known->keeps_arenas();
}

namespace {

/// Of a plan that is looked at and perhaps never run.
class CodeWhenUsed final : public DeviceCode {
 public:
  CodeWhenUsed(const loops::Plan& plan, const DeviceInterface& device) : plan_(plan), device_(device) {}

  bool finish() override { return true; }
  const KernelFacts& facts(int kernel) const override { return code().facts(kernel); }
  void launch(int kernel, Queue& queue, const Launch& launch) const override {
    code().launch(kernel, queue, launch);
  }
  void reserve(int kernel, Queue& queue, const int64_t* extents) const override {
    code().reserve(kernel, queue, extents);
  }
  void pack(int kernel, Queue& queue, const void* weights, const std::vector<int64_t>& strides,
            void* packed) const override {
    code().pack(kernel, queue, weights, strides, packed);
  }
  void launch_list(std::span<const OfList> list, Queue& queue) const override {
    code().launch_list(list, queue);
  }

 private:
  const DeviceCode& code() const {
    std::call_once(once_, [&] {
      code_ = device_.compile(plan_);
      code_->finish();
    });
    return *code_;
  }

  const loops::Plan& plan_;
  const DeviceInterface& device_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<DeviceCode> code_;
};

/// `make`: the code of a plan for one kind of device.
template <typename Codes, typename Make>
void for_devices_of(const loops::Plan& plan, Codes& codes, const Make& make) {
  for (const auto* list : {&plan.steps, &plan.fold_steps})
    for (const loops::Step& step : *list) {
      auto& code = codes.at(static_cast<size_t>(step.device.kind));
      if (!code && loops::kernel_of(step) >= 0) code = make(*find(step.device.kind));
    }
}

}  // namespace

PlanCode::PlanCode(const loops::Plan& plan) {
  for_devices_of(plan, codes_, [&](const DeviceInterface& device) { return device.compile(plan); });
}

PlanCode PlanCode::when_used(const loops::Plan& plan) {
  PlanCode out;
  for_devices_of(plan, out.codes_,
                 [&](const DeviceInterface& device) { return std::make_unique<CodeWhenUsed>(plan, device); });
  return out;
}

const DeviceCode& PlanCode::of(graph::Device device) const {
  return *codes_.at(static_cast<size_t>(device.kind));
}

bool PlanCode::finish() const {
  bool found = true;
  for (const auto& code : codes_)
    if (code) found &= code->finish();
  return found;
}

}  // namespace bolt::device

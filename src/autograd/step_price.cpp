// autograd/step_price.cpp
// See step_price.h.
#include "autograd/step_price.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "graph/device_facts.h"
#include "record/convert.h"
#include "support/by_name.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::TensorInfo;

/// An operator that multiplies and adds: the kind of its two operands, of which the second follows the first,
/// and how often it does so much.
struct Multiplying {
  enum Kind : uint8_t { Matrices, Image, Attention } kind;
  int first;
  double times;
};
constexpr std::pair<Multiplying, std::string_view> kContractions[] = {
    {{Multiplying::Matrices, 0, 1}, "mm bmm _grouped_mm"},
    {{Multiplying::Matrices, 1, 1}, "addmm baddbmm"},
    {{Multiplying::Image, 0, 1}, "convolution"},
    {{Multiplying::Image, 1, 2}, "convolution_backward"},
    {{Multiplying::Attention, 0, 2},
     "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
     "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"},
    {{Multiplying::Attention, 1, 5},
     "_scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward "
     "_scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward"},
};

class StepPrice {
 public:
  StepPrice(const Flow& flow, const std::vector<int>& needed)
      : flow_(flow), needed_(needed), in_memory_(flow.storages.size()) {}

  double all() {
    each([&](int i) {
      if (!fuses(flow_.entries[i].work))
        for (int s : flow_.entries[i].reads) in_memory_[s] = true;
    });
    for (size_t s = 0; s < in_memory_.size(); ++s)
      if (flow_.storages[s].output) in_memory_[s] = true;
    for (record::TensorId id : flow_.joint.gradients)
      if (id >= 0) in_memory_[flow_.storage_of(id)] = true;
    double price = 0;
    each([&](int i) { price += of(i); });
    return price;
  }

 private:
  template <class Each>
  void each(Each each) {
    for (size_t i = 0; i < flow_.joint.backward; ++i) each(static_cast<int>(i));
    for (int i : needed_) each(i);
  }

  double of(int i) const {
    const EntryFlow& entry = flow_.entries[i];
    double bytes = 0;
    for (int s : entry.makes)
      if (in_memory_[s] || !fuses(entry.work)) bytes += bytes_of(s);
    if (fuses(entry.work)) return bytes * flow_.prices.materialised;
    for (int s : entry.reads) bytes += bytes_of(s);
    return std::max(bytes * flow_.prices.materialised, of_products(flow_.entry(i)));
  }

  double bytes_of(int storage) const { return static_cast<double>(flow_.storages[storage].bytes); }

  double of_products(const Entry& entry) const {
    static const auto contractions = by_name(kContractions);
    const auto row = contractions.find(base_name(entry));
    if (row == contractions.end()) return 0;
    const auto& [kind, first, times] = row->second;
    const TensorInfo &a = operand(entry, first), &b = operand(entry, first + 1);
    const graph::MachineSpeed& machine = graph::facts_of(record::to_bolt(a.device)).speed;
    return times * multiply_adds(entry, kind, a, b) * machine.bytes_per_ns / machine.multiply_adds_per_ns;
  }

  double multiply_adds(const Entry& entry, Multiplying::Kind kind, const TensorInfo& a,
                       const TensorInfo& b) const {
    const auto elements = [](const TensorInfo& of) { return static_cast<double>(of.elements()); };
    if (kind == Multiplying::Matrices) return elements(a) * static_cast<double>(b.sizes.back());
    if (kind == Multiplying::Attention) return elements(a) * static_cast<double>(b.sizes[b.sizes.size() - 2]);
    // Each element of the side that the weights' first dimension belongs to meets the rest of them.
    constexpr int kTransposed = 6;  // counted from the image
    const bool backward = base_name(entry) != "convolution";
    const bool transposed = entry.args[(backward ? 1 : 0) + kTransposed].value.toBool();
    const TensorInfo& made = backward ? operand(entry, 0) : flow_.info(entry.results[0].tensors[0]);
    return elements(transposed ? a : made) * elements(b) /
           static_cast<double>(std::max<int64_t>(b.sizes[0], 1));
  }

  const TensorInfo& operand(const Entry& entry, int at) const {
    return flow_.info(entry.args[at].tensors[0]);
  }

  const Flow& flow_;
  const std::vector<int>& needed_;
  std::vector<bool> in_memory_;  ///< by storage
};

}  // namespace

double price_of_step(const Flow& flow, const std::vector<int>& needed) {
  return StepPrice(flow, needed).all();
}

}  // namespace bolt::autograd

// record/left_to_eager.cpp
#include "record/left_to_eager.h"

#include <string_view>

#include "device/host/host.h"
#include "record/operator_facts.h"

namespace bolt::record {
namespace {

/// Where steps are written out, that many operators of one kind at most. Compiling takes longer the more
/// there are, and a library's call is then as fast.
constexpr int64_t kMostSteps = 32;

/// (input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), and for sequences
/// that are packed (data, batch_sizes, hx, params, has_biases, ...).
class Layer {
 public:
  explicit Layer(const Entry& entry)
      : entry_(entry), is_packed_(entry.op.operator_name().overload_name == "data"), states_(is_packed_) {}

  bool is_packed() const { return is_packed_; }
  const TensorIds& weights() const { return at(2).tensors; }
  bool has_biases() const { return at(3).value.toBool(); }
  int64_t layers() const { return at(4).value.toInt() * (at(7).value.toBool() ? 2 : 1); }
  size_t time() const { return at(8).value.toBool() ? 1 : 0; }
  /// What it hands on is made smaller by one more weight.
  bool is_projected() const {
    return static_cast<int64_t>(weights().size()) != layers() * (has_biases() ? 4 : 2);
  }

 private:
  const Arg& at(size_t i) const { return entry_.args[i + states_]; }

  const Entry& entry_;
  const bool is_packed_;
  const size_t states_;
};

bool is_recurrent_and_eagers(const Tape& tape, const Entry& entry, bool sizes_differ) {
  if (!entry.facts->recurrent) return false;
  const Layer layer(entry);
  const TensorInfo& input = tape.tensors[static_cast<size_t>(entry.args[0].tensors[0])];
  if (layer.is_packed() || sizes_differ || !device::is_processor(input.device)) return true;
  if (entry.op.operator_name().name == "aten::lstm" && !layer.is_projected()) return true;  // oneDNN's
  return input.sizes[layer.time()] * layer.layers() > kMostSteps;
}

/// (weight, indices, padding_idx, scale_grad_by_freq, sparse), and of bags (weight, indices, offsets,
/// scale_grad_by_freq, mode, sparse, ...).
bool has_sparse_gradient(const Tape& tape, const Entry& entry) {
  const std::string_view name = entry.op.operator_name().name;
  const size_t sparse = name == "aten::embedding" ? 4 : name == "aten::embedding_bag" ? 5 : 0;
  if (sparse == 0 || !entry.grad_mode) return false;
  const Arg& flag = entry.args[sparse];
  return flag.value.isBool() && flag.value.toBool() &&
         tape.tensors[static_cast<size_t>(entry.args[0].tensors[0])].requires_grad;
}

/// Their sizes are known when they have run, and those behind them are of other pieces.
bool finds_sizes(const Tape& tape, const Entry& entry) {
  return any_tensor(entry.results,
                    [&](TensorId id) { return tape.tensors[static_cast<size_t>(id)].data_dims != 0; });
}

/// It reads in a tensor how many steps each sequence has.
bool pads_packed(const Entry& entry) {
  return entry.op.operator_name().name == "torchbolt::pad_packed_sequence";
}

/// (self, mat2, offs, ...): products of the groups of a mixture of experts. bfloat16 has a kernel that reads
/// on the device where groups end; for other types ATen reads it on the host and makes one product after
/// another, forwards and backwards.
bool is_product_of_groups_on_host(const Tape& tape, const Entry& entry) {
  if (entry.op.operator_name().name != "aten::_grouped_mm" || !entry.grad_mode) return false;
  const TensorInfo& self = tape.tensors[static_cast<size_t>(entry.args[0].tensors[0])];
  const TensorInfo& other = tape.tensors[static_cast<size_t>(entry.args[1].tensors[0])];
  return self.dtype != c10::ScalarType::BFloat16 && !device::is_processor(self.device) &&
         (self.requires_grad || other.requires_grad);
}

}  // namespace

std::vector<size_t> left_to_eager(const Tape& tape, bool sizes_differ) {
  std::vector<size_t> entries;
  for (size_t i = 0; i < tape.entries.size(); ++i)
    if (is_recurrent_and_eagers(tape, tape.entries[i], sizes_differ) ||
        has_sparse_gradient(tape, tape.entries[i]) || finds_sizes(tape, tape.entries[i]) ||
        pads_packed(tape.entries[i]) || is_product_of_groups_on_host(tape, tape.entries[i]))
      entries.push_back(i);
  return entries;
}

}  // namespace bolt::record

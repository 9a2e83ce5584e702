// record/recurrent.cpp: see recurrent.h.
#include "record/recurrent.h"

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
  const TensorIds& states() const { return at(1).tensors; }
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

}  // namespace

bool is_left_to_eager(const Tape& tape, const Entry& entry, bool sizes_differ) {
  if (!entry.facts->recurrent) return false;
  const Layer layer(entry);
  const TensorInfo& input = tape.tensors[static_cast<size_t>(entry.args[0].tensors[0])];
  if (layer.is_packed() || sizes_differ || !input.device.is_cpu()) return true;
  if (entry.op.operator_name().name == "aten::lstm" && !layer.is_projected()) return true;  // oneDNN's
  return input.sizes[layer.time()] * layer.layers() > kMostSteps;
}

TensorId source_of_size(const Entry& layer, size_t result) {
  return result == 0 ? layer.args[0].tensors[0] : Layer(layer).states()[result - 1];
}

}  // namespace bolt::record

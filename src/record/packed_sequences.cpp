// record/packed_sequences.cpp
// Sequences that are packed -> padded ones, by an operator of ours: ATen's has to be told the length as a
// number, and reads how many sequences there are out of a tensor. To this one both are sizes, which may
// differ between calls, or be data.
#include <ATen/core/Scalar.h>
#include <ATen/ops/_pad_packed_sequence.h>
#include <torch/library.h>

#include <tuple>

namespace bolt::record {
namespace {

std::tuple<at::Tensor, at::Tensor> padded(const at::Tensor& data, const at::Tensor& batch_sizes,
                                          bool batch_first, const at::Scalar& padding_value,
                                          c10::SymInt total_length, c10::SymInt /*sequences*/) {
  return at::_pad_packed_sequence(data, batch_sizes, batch_first, padding_value,
                                  total_length.guard_int(__FILE__, __LINE__));
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def(
      "pad_packed_sequence(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, "
      "SymInt total_length, SymInt sequences) -> (Tensor, Tensor)");
  m.impl("pad_packed_sequence", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(padded));
}

}  // namespace
}  // namespace bolt::record

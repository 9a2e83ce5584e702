// autograd/row_statistics.cpp
#include "autograd/row_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/amax.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "autograd/flow.h"
#include "record/copy.h"
#include "record/make_entry.h"

namespace bolt::autograd {
namespace {

using record::Entry;
using record::TensorId;
using record::TensorInfo;

/// Of shorter rows the statistics are no smaller than what a warp finds out in passing.
constexpr int64_t kLong = 512;

// Where the operators of a tape are replayed; kernels have lower/lowerings/activations.cpp.
std::tuple<at::Tensor, at::Tensor> log_softmax_statistics(const at::Tensor& self, int64_t dim) {
  const at::Tensor top = self.amax(dim, true);
  return {top, (self - top).exp_().sum(dim, true).log_()};
}
at::Tensor log_softmax_with(const at::Tensor& self, const at::Tensor& top, const at::Tensor& log_sum) {
  return (self - top).sub_(log_sum);
}

TORCH_LIBRARY_FRAGMENT(torchbolt, m) {
  m.def("log_softmax_statistics(Tensor self, int dim) -> (Tensor top, Tensor log_sum)");
  m.impl("log_softmax_statistics", c10::DispatchKey::CompositeExplicitAutograd,
         TORCH_FN(log_softmax_statistics));
  m.def("log_softmax_with(Tensor self, Tensor top, Tensor log_sum) -> Tensor");
  m.impl("log_softmax_with", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(log_softmax_with));
}

class Keeping {
 public:
  explicit Keeping(Joint& joint) : joint_(joint) {
    for (size_t i = joint.backward; i < joint.tape.entries.size(); ++i)
      for_each_tensor(joint.tape.entries[i].args, [&](TensorId id) { read_.insert(id); });
    for (TensorId id : joint.outputs)
      if (id >= 0) given_.insert(info(id).storage);
  }

  void run() {
    std::vector<size_t> places;
    for (size_t i = 0; i < joint_.backward; ++i)
      if (is_read_back(joint_.tape.entries[i])) places.push_back(i);
    if (places.empty()) return;
    record::replace_entries(joint_.tape, places, [&](const Entry& entry) { add_in_two(entry); });
    joint_.backward += places.size();
  }

 private:
  const TensorInfo& info(TensorId id) const { return joint_.tape.tensors[id]; }

  static int64_t dim_of(const Entry& entry, size_t rank) {
    const int64_t dim = entry.args[1].value.toInt();
    return dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
  }

  /// In one type all along: what is rounded is not made of statistics that are not.
  bool is_read_back(const Entry& entry) const {
    if (entry.op.operator_name().name != "aten::_log_softmax" || entry.args[0].tensors.size() != 1)
      return false;
    const TensorId from = entry.args[0].tensors[0], to = entry.results[0].tensors[0];
    if (from < 0 || to < 0 || !read_.contains(to) || given_.contains(info(to).storage)) return false;
    const TensorInfo& x = info(from);
    if (x.dtype != info(to).dtype || (x.dtype != at::kFloat && x.dtype != at::kDouble)) return false;
    return !x.sizes.empty() && x.sizes[dim_of(entry, x.sizes.size())] >= kLong;
  }

  void add_in_two(const Entry& entry) {
    const TensorId x = entry.args[0].tensors[0], result = entry.results[0].tensors[0];
    const auto dim = dim_of(entry, info(x).sizes.size());
    const TensorId top = of_rows(x, dim), log_sum = of_rows(x, dim);
    record::add_entry(joint_.tape, record::make_entry(joint_.tape, "torchbolt::log_softmax_statistics", "",
                                                      {record::tensor_arg(x), record::value_arg(dim)},
                                                      {top, log_sum}, entry.loc));
    record::add_entry(joint_.tape, record::make_entry(joint_.tape, "torchbolt::log_softmax_with", "",
                                                      {record::tensor_arg(x), record::tensor_arg(top),
                                                       record::tensor_arg(log_sum)},
                                                      {result}, entry.loc));
  }

  /// One more tensor: a number for each row of `x`.
  TensorId of_rows(TensorId x, int64_t dim) {
    const TensorId added = record::add_contiguous(joint_.tape, x);
    TensorInfo& made = joint_.tape.tensors[added];
    made.sizes[dim] = 1;
    made.requires_grad = false;
    made.strides = record::Dims();
    for (int64_t stride : c10::contiguous_strides(made.sizes)) made.strides.push_back(stride);
    if (joint_.sizes.empty()) return added;
    Syms sizes = joint_.sizes[x];
    if (!sizes.empty()) sizes[dim] = Sym(1);
    joint_.sizes.push_back(std::move(sizes));
    return added;
  }

  Joint& joint_;
  std::unordered_set<TensorId> read_;  ///< by the backward part
  std::unordered_set<int> given_;      ///< storages of results
};

}  // namespace

void keep_row_statistics(Joint& joint) { Keeping(joint).run(); }

}  // namespace bolt::autograd

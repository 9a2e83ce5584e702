// autograd/results.h
// An operator that is called on fakes -> what its results are like: sizes, strides, element types, and
// whether they are views of what was given.
//
// ATen would say so through the kernels of its Meta device. But importing torch puts functions of Python's in
// their place, which take from 0.1 ms to several a call and the GIL. So the C++ kernels of structured
// operators are called directly (meta_kernels.def), what has no such kernel has a row of ours
// (result_rows.cpp), and only what has neither is asked for in Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bolt::autograd {

/// "aten::add.Tensor" -> a kernel for tensors of the meta device.
using MetaKernels = std::unordered_map<std::string, c10::KernelFunction>;
const MetaKernels& meta_kernels();

/// A call as the rows of ours see it. Results that are given are new tensors of the meta device.
class ResultCall {
 public:
  ResultCall(const torch::jit::Stack& stack, size_t first) : stack_(stack), first_(first) {}

  const c10::IValue& argument(size_t i) const { return stack_[first_ + i]; }
  /// Undefined: there is none, or a number stands in its place.
  at::Tensor tensor(size_t i) const;
  std::vector<int64_t> integers(size_t i) const { return argument(i).toIntVector(); }
  bool flag(size_t i) const { return argument(i).toBool(); }
  /// Of an argument that may be None; then `otherwise`.
  at::ScalarType dtype(size_t i, at::ScalarType otherwise) const;

  void give(at::IntArrayRef sizes, at::ScalarType dtype);  ///< contiguous
  void give(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype);
  /// As empty_like() makes it.
  void give_like(const at::Tensor& t, at::ScalarType dtype);
  void give_like(const at::Tensor& t) { give_like(t, t.scalar_type()); }
  /// Contiguous, or with the channels last.
  void give_format(at::IntArrayRef sizes, at::MemoryFormat format, at::ScalarType dtype);
  void give_number(int64_t number) { results_.emplace_back(number); }
  void give_nothing() { results_.emplace_back(at::Tensor()); }  ///< an undefined tensor

  torch::jit::Stack take_results() { return std::move(results_); }

 private:
  const torch::jit::Stack& stack_;
  size_t first_;
  torch::jit::Stack results_;
};

/// Gives the results; false: it does not know this call.
using ResultRow = bool (*)(ResultCall&);
const std::unordered_map<std::string_view, ResultRow>& result_rows();

}  // namespace bolt::autograd

// autograd/numbers_in_tensors.h
// An operator on fakes that is given a number out of a tensor -> the same of the tensor.
//
// Formulas of ATen's hand a tensor on, and compute with a number that nobody knows before the run. Most of
// ATen's operators that take a number have an overload that takes a tensor in its place (clamp, where, pow),
// whose gradients are the same. Of a sum with a factor of its own (`add(alpha=n)`) what the factor belongs to
// is multiplied before.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <unordered_map>

#include "record/tape.h"

namespace bolt::autograd {

/// Arguments of the run's that are numbers out of tensors -> the fakes that these were taken out of.
class NumbersTaken {
 public:
  /// Gives the number of the recorded run.
  c10::IValue take(const at::Tensor& from, const record::Arg& arg) { return from_[&arg] = from, arg.value; }
  const at::Tensor& of(const record::Arg& arg) const { return from_.at(&arg); }

 private:
  std::unordered_map<const record::Arg*, at::Tensor> from_;
};

/// Is the argument such a number, and no operand that stands in a tensor's place?
inline bool is_number_of_tensor(const record::Arg& arg) {
  return arg.kind == record::Arg::Kind::Value && !arg.tensors.empty();
}

/// False: there is no such overload. Otherwise the stack holds what the operator gives.
bool call_with_tensors(const record::Entry& entry, const NumbersTaken& taken, torch::jit::Stack& stack);

}  // namespace bolt::autograd

// autograd/function.h
// torch.autograd.Function as an operator: the tensors that a forward pass of the user's has given -> the same
// with a node of autograd behind them that runs the user's backward pass.
//
//   torchbolt::function(int backward, Tensor?[] inputs, Tensor(a)[] outputs, Tensor[] saved,
//                       SymInt[] ints, bool[] differentiable, bool materialize) -> Tensor(a)[]
//
// torchbolt.stand_ins.functions runs the forward pass in the open, so that its operators are recorded, and
// ends with this one. A tape with it is replayed as any other: on real tensors autograd's engine calls the
// backward pass, and where a joint tape is made the user's Python code meets tensors that only stand for
// others, and its operators are written to the tape. Code that looks at their data cannot be; it is refused.
//
// What a call was that is no tensor lies in `backward`, which is a number: that of a Python callable kept
// here, (saved, ints, gradients) -> gradients of the inputs. Ints that differ between calls are arguments of
// the operator, so they are followed as sizes are: the backward pass is called for each set of them.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <Python.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "python/py_ref.h"

namespace bolt::autograd {

/// Keeps the callable for the rest of the process, and gives its number: as tapes do that name it.
int64_t keep_callable(PyObject* callable);
const PyRef& kept_callable(int64_t number);

using FunctionInputs = c10::List<std::optional<at::Tensor>>;

/// torchbolt::function on real tensors, for this call alone: the node holds the callable. `written`: outputs
/// that are inputs which the forward pass wrote to; those are given back as they are, with another history.
std::vector<at::Tensor> tie_function(PyObject* callable, const FunctionInputs& inputs, at::TensorList outputs,
                                     at::TensorList saved, std::vector<bool> differentiable,
                                     std::vector<bool> written, bool materialize);

}  // namespace bolt::autograd

// autograd/function.h
// torch.autograd.Function as an operator: the tensors that a forward pass of the user's has given -> the same
// with a node of autograd behind them that runs the user's backward pass.
//
//   torchbolt::function(int backward, Tensor?[] inputs, Tensor(a)[] outputs, Tensor[] saved,
//                       bool[] differentiable, bool materialize) -> Tensor(a)[]
//
// torchbolt.stand_ins runs the forward pass in the open, so that its operators are recorded, and ends with
// this one. A tape with it is replayed as any other: on real tensors autograd's engine calls the backward
// pass, and where a joint tape is made the user's Python code meets tensors that only stand for others, and
// its operators are written to the tape. Code that looks at their data cannot be; it is refused.
//
// What a call was that is no tensor lies in `backward`, which is a number: that of a Python callable kept
// here, (saved, gradients) -> gradients of the inputs.
#pragma once

#include <Python.h>

#include <cstdint>

namespace bolt::autograd {

/// Keeps the callable for the rest of the process, and gives its number: as tapes do that name it.
int64_t keep_backward(PyObject* callable);

}  // namespace bolt::autograd

// run/results.h
// What a region computed -> what its caller gets beside fresh tensors, whoever computed it: inputs, views of
// inputs and of other results, and inputs that became views of themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lower/functionalize.h"

namespace bolt::run {

using Tensors = std::vector<at::Tensor>;

/// A result, evaluated for a call: as TensorOut has it.
struct Result {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
};

/// Of what lies in these strides, or is to, each element once: nothing may be written where elements share
/// their memory.
at::Tensor shown_once(at::Tensor t, at::IntArrayRef strides);

/// The graph's inputs: those of the tape, or the constants that stand for them.
std::vector<at::Tensor> graph_inputs(const lower::Lowered& lowered, const std::vector<at::Tensor>& inputs);

/// Makes all outputs that are not fresh. `results`: of the outputs, then of the inputs that became views of
/// themselves. `grad_mode`: of the call. When everything is written: autograd takes a view that is older than
/// the last write for out of date.
void give_views(const lower::Lowered& lowered, const std::vector<Result>& results,
                const std::vector<at::Tensor>& inputs, bool grad_mode, std::vector<at::Tensor>& out);

/// A graph input was written: who asks its version learns of it, or who may have used its memory beforehand.
void announce_write(const lower::Lowered& lowered, const std::vector<at::Tensor>& inputs, int graph_input);

/// x.t_(): first, before there are views of them, that they change, and last, that they have.
void announce_reshaped(const lower::Lowered& lowered, const std::vector<at::Tensor>& inputs);
void reshape(const lower::Lowered& lowered, const std::vector<Result>& results,
             const std::vector<at::Tensor>& inputs);

}  // namespace bolt::run

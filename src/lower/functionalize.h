// lower/functionalize.h
// Tape -> Graph: aliases and in-place writes become values.
//
// Every storage the tape touched has a root: the tensor that owned the storage when first seen. A tensor that
// shares the storage is a window on it: a chain of view operations from its parent. Reading a tensor gives
// the value of its root pushed through the chain; writing one computes the root's new value backwards through
// the chain (a slice becomes slice_scatter, a permute its inverse) and every other window of that storage
// sees it at its next read. Which tensors share storage is not derived from operators: the recorded run has
// shown it.
//
// Outputs: a wanted tensor whose storage is an input's is not computed at all, the program makes the same
// view of the caller's tensor. Inputs whose storage was written become `write` outputs.
//
// Throws Unsupported where values cannot express what happened (two inputs overlap and one is written,
// a write through a view without inverse): the region then runs its tape.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/ir.h"
#include "lower/sizes.h"
#include "record/tape.h"

namespace bolt::lower {

/// What an `extern_call` node runs; its tensor arguments are positions among the node's operands.
struct ExternCall {
  c10::OperatorHandle op;
  std::vector<record::Arg> args;
  std::vector<int>
      written;  // argument indices the operator writes: it is given copies, which are further results
  bool clone_results = false;  // the operator returns views: results are made independent
  size_t gives = 0;            // how many tensors it gave, with those that it wrote
  /// Per operand the dimensions as they lie in eager's memory, outermost first, where that matters; none: it
  /// does not, or the operand is eager's own.
  std::vector<std::vector<int>> orders;
  bool shows_parts = false;  // of complex numbers: results lie as eager's do, at every second number
  bool operator==(const ExternCall&) const = default;
};

struct TensorOut {
  enum class Kind : uint8_t {
    Fresh,      // graph output `index`
    Input,      // tape input `index` itself
    InputView,  // a view of tape input `index`
    OutputView  // a view of the storage of wanted tensor `index` (an earlier one, Fresh)
  } kind = Kind::Fresh;
  int index = -1;
  Syms sizes, strides;
  Sym offset = 0;         // views: elements from the first element of the tensor viewed
  bool detached = false;  // InputView: requires no gradient where the input does
  bool unseen = false;    // by all but a later part of the program
};

struct Lowered {
  std::unique_ptr<graph::Graph> graph;
  std::vector<ExternCall> calls;
  std::vector<int> inputs;          // per graph input: the tape input it is
  std::vector<int> counted_writes;  // by graph input: how often its version counts that it is written (not:
                                    // t.data); or empty
  std::vector<TensorOut> outputs;   // one per wanted tensor, then storages that several of them are views of
  std::vector<TensorOut> reshaped;  // inputs that became views of themselves (x.t_()): done last
  std::unordered_map<int, at::Tensor>
      constants;  // tape input -> contents, where the graph takes it as constant
};

/// All of `lowered` but its graph.
Lowered without_graph(const Lowered& lowered);
/// `rest` with a copy of `general`, and `value` of each symbol in its place.
Lowered substituted(const graph::Graph& general, const Lowered& rest, const std::function<Sym(Sym)>& value);

struct LowerOptions {
  std::vector<bool> is_param;                     // per tape input
  std::unordered_map<int, at::Tensor> constants;  // tape input -> contents known at compile time
  std::vector<uintptr_t> addresses = {};          // per tape input: where it lies now (graph::Input)
  bool rounds_as_eager = false;                   // loops::PlanOptions
};

/// Throws SizeDemand where it cannot go on with `sizes` as they are; what it takes for granted is noted
/// there.
Lowered functionalize(const record::Tape& tape, const std::vector<record::TensorId>& wanted,
                      const LowerOptions& options, Sizes& sizes);

}  // namespace bolt::lower

// autograd/sequence_losses.h
// Losses over sequences (ctc_loss) on fakes -> an operator of ours that gives the losses and their slopes,
// with a node of autograd's that multiplies.
//
// ATen reads lengths and labels out of tensors before it chooses a kernel, and what a kernel leaves for its
// gradient is as large as the longest label: a fake has no such data. The slope of each loss is as large as
// the scores, and it comes of ATen's own kernels, forwards and backwards, in one call; the gradient is a
// product, which is the last thing that those kernels compute as well.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>

#include "record/tape.h"

namespace bolt::autograd {

/// False: it is none of those, or nobody differentiates it. Otherwise the stack holds what the operator
/// gives. `call` takes an operator's arguments off a stack and puts its results there, without a history.
bool call_sequence_loss(const record::Entry& entry, torch::jit::Stack& stack,
                        const std::function<void(const c10::OperatorHandle&, torch::jit::Stack&)>& call);

}  // namespace bolt::autograd

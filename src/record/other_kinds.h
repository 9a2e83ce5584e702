// record/other_kinds.h
// A tensor -> why no region computes with it: what it holds is not memory with strides, which is all that
// tapes and graphs speak of, and that its class runs Python for each operator.
#pragma once

#include <ATen/core/stack.h>

namespace bolt::record {

/// The kind of the first tensor of another kind among the last `count` values; null: there is none.
const char* other_kind(const torch::jit::Stack& stack, size_t count);

}  // namespace bolt::record

// record/other_kinds.h
// A tensor -> why no region computes with it: what it holds is not memory with strides, which is all that
// tapes and graphs speak of, and that its class runs Python for each operator.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

namespace bolt::record {

// Quantized and mkldnn tensors are missing: chains of operators on them are better replayed as a whole.
constexpr c10::DispatchKeySet kOtherKinds({c10::DispatchKey::Python, c10::DispatchKey::Sparse,
                                           c10::DispatchKey::SparseCsr, c10::DispatchKey::NestedTensor});

/// Of one tensor, or of the first in a list that is of another kind.
const char* other_kind(const c10::IValue& value);

/// The kind of the first tensor of another kind among the last `count` values; null: there is none. Asked of
/// every value that an operator takes or gives, nearly all of them tensors of the usual kind.
inline const char* other_kind(const torch::jit::Stack& stack, size_t count) {
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor() ? value.toTensor().key_set().has_any(kOtherKinds) : value.isList())
      if (const char* kind = other_kind(value)) return kind;
  }
  return nullptr;
}

}  // namespace bolt::record
